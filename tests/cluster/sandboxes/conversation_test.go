//go:build cluster

package sandboxes

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"cofferdam.dev/tests/cluster/internal/kube"
	"cofferdam.dev/tests/internal/apiclient"
)

// conversation is one for a goroutine, with clients that are made once for many.
type conversation struct {
	user, operator *apiclient.Client
	agent, id      string
}

var errCapacity = errors.New("sandbox_capacity: no sandbox was free")

func newConversation(user, operator *apiclient.Client, agent string) *conversation {
	return &conversation{user: user, operator: operator, agent: agent, id: "c-" + rand.Text()}
}

// turn runs one to its end, which must be a finish, and gives the binding with its lease.
func (c *conversation) turn(ctx context.Context, message string) (apiclient.Binding, error) {
	ctx, cancel := context.WithTimeout(ctx, kube.Patience)
	defer cancel()
	run, err := c.user.Start(ctx, apiclient.Start{AgentID: c.agent, ConversationID: c.id, Message: message})
	if err != nil {
		return apiclient.Binding{}, fmt.Errorf("start: %w", err)
	}
	events, err := c.user.Follow(ctx, run.RunID)
	if err != nil {
		return apiclient.Binding{}, fmt.Errorf("follow: %w", err)
	}
	if n := len(events); n > 0 && events[n-1].Type == "run.error" && strings.Contains(string(events[n-1].Data), `"sandbox_capacity"`) {
		return apiclient.Binding{}, errCapacity
	} else if n == 0 || events[n-1].Type != "run.finished" {
		return apiclient.Binding{}, fmt.Errorf("%s did not finish: %d events, %s", run.RunID, n, events[max(n-1, 0)].Raw)
	}
	b, err := c.operator.Binding(ctx, run.BindingID)
	if err == nil && b.Lease == nil {
		err = errors.New("it has no lease")
	}
	return b, err
}

// clear gives the sandbox back. It does not wait until it has gone.
func (c *conversation) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, kube.Patience)
	defer cancel()
	body, err := json.Marshal(map[string]any{"agent_id": c.agent})
	if err != nil {
		return err
	}
	a, err := c.user.Do(ctx, http.MethodPost, "/api/v1/conversations/"+c.id+"/clear", "application/json", bytes.NewReader(body))
	return errors.Join(err, a.Err())
}
