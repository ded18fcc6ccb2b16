// Package authz has what the parts that ask OpenFGA must agree on: the
// authorization model and how ids are written in it.
//
// It asks nothing itself and links no OpenFGA client. The control plane and
// ToolBroker check with it, and whoever sets a store up writes the model and the
// tuples with it, so that both sides spell a subject alike. What the model means
// stands in model.fga.yaml, as tests in OpenFGA's own format.
package authz

import (
	_ "embed"
)

// The relations of the model.
const (
	// CanInvoke is asked of an agent before a run, and of an agent and a tool
	// before each call of a tool.
	CanInvoke = "can_invoke"
	// Operator is asked of [System] for the routes of operators, at whichever address.
	Operator = "operator"
	// Member is of an organization; it is never asked for by itself.
	Member = "member"
)

//go:embed model.fga
var dsl string

//go:embed model.json
var model []byte

// DSL is the authorization model for people, in OpenFGA's own language.
func DSL() string { return dsl }

// ModelJSON is the same model as the body of OpenFGA's request
// POST /stores/{store_id}/authorization-models. The caller owns the slice.
func ModelJSON() []byte { return append([]byte(nil), model...) }
