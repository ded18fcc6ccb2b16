package openfga

import (
	"context"
	"fmt"
	"slices"

	openfga "github.com/openfga/go-sdk"
	"github.com/openfga/go-sdk/client"

	"cofferdam.dev/pkg/authz"
)

const (
	readPage = 100
	// writeBatch is how many tuples OpenFGA takes at once.
	writeBatch = 100
	// maxTuples bounds what is read to find out which grants are missing.
	maxTuples = 100_000
)

// Demo is who may do what on one machine: the members of the organization, one of
// whom is the user, may invoke agents and tools, and the operator sees bindings.
func Demo(user, organization, operator string, agents, tools []string) []Grant {
	members := authz.OrganizationMembers(organization)
	out := []Grant{
		{authz.UserID(user), authz.Member, authz.OrganizationID(organization)},
		{authz.UserID(operator), authz.Operator, authz.System},
		{authz.UserID(operator), authz.Member, authz.OrganizationID(organization)},
	}
	for _, a := range agents {
		out = append(out, Grant{members, authz.CanInvoke, authz.AgentID(a)})
	}
	for _, t := range tools {
		out = append(out, Grant{members, authz.CanInvoke, authz.ToolID(t)})
	}
	return out
}

// ensureGrants writes the grants that are missing. Writing one that is there would
// fail, and with it all that are written at the same time.
func ensureGrants(ctx context.Context, fga *client.OpenFgaClient, model string, want []Grant) error {
	there, err := granted(ctx, fga)
	if err != nil {
		return err
	}
	var missing client.ClientWriteTuplesBody
	for _, g := range want {
		if !there[g] {
			there[g] = true
			missing = append(missing, client.ClientTupleKey{User: g.User, Relation: g.Relation, Object: g.Object})
		}
	}
	for batch := range slices.Chunk(missing, writeBatch) {
		_, err := fga.WriteTuples(ctx).Body(batch).
			Options(client.ClientWriteOptions{AuthorizationModelId: &model, Transaction: &client.TransactionOptions{}}).Execute()
		if err != nil {
			return fmt.Errorf("openfga: write grants: %w", err)
		}
	}
	return nil
}

func granted(ctx context.Context, fga *client.OpenFgaClient) (map[Grant]bool, error) {
	there := map[Grant]bool{}
	size, token := openfga.PtrInt32(readPage), ""
	for {
		page, err := fga.Read(ctx).Body(client.ClientReadRequest{}).
			Options(client.ClientReadOptions{PageSize: size, ContinuationToken: &token}).Execute()
		if err != nil {
			return nil, fmt.Errorf("openfga: read grants: %w", err)
		}
		for _, t := range page.GetTuples() {
			there[Grant{t.Key.User, t.Key.Relation, t.Key.Object}] = true
		}
		token = page.GetContinuationToken()
		if token == "" {
			return there, nil
		}
		if len(there) > maxTuples {
			return nil, fmt.Errorf("openfga: the store holds more than %d grants", maxTuples)
		}
	}
}
