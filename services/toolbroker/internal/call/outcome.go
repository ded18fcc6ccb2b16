package call

import (
	"encoding/json"
	"errors"
	"strconv"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/toolbroker/internal/project"
)

// outcome is a result as the ledger keeps it.
type outcome struct {
	Result    json.RawMessage `json:"result"`
	IsError   bool            `json:"is_error,omitempty"`
	Truncated bool            `json:"truncated,omitempty"`
	Ref       string          `json:"result_ref,omitempty"`
	// Asked is what the tool asks the user before it goes on.
	Asked *asked `json:"asked,omitempty"`
}

func (o outcome) result() project.Result {
	return project.Result{JSON: o.Result, IsError: o.IsError, Truncated: o.Truncated}
}

// maxOutcome is what a result and its flags can take, in bytes.
const (
	maxOutcome = project.MaxBytes + 512
	maxRef     = 128
)

func encodeOutcome(r project.Result, ref string, a *asked) ([]byte, error) {
	if len(r.JSON) > project.MaxBytes || len(ref) > maxRef {
		return nil, errors.New("call: a result is over its bound")
	}
	// Not by json.Marshal, which would write < and > in six bytes each.
	b := append([]byte(`{"result":`), r.JSON...)
	if r.IsError {
		b = append(b, `,"is_error":true`...)
	}
	if r.Truncated {
		b = append(b, `,"truncated":true`...)
	}
	if ref != "" {
		b = append(b, `,"result_ref":`...)
		b = strconv.AppendQuoteToASCII(b, ref)
	}
	if a != nil {
		question, err := json.Marshal(a)
		if err != nil {
			return nil, err
		}
		b = append(append(b, `,"asked":`...), question...)
	}
	b = append(b, '}')
	if len(b) > binding.MaxOutcomeBytes {
		return nil, errors.New("call: a question is over its bound")
	}
	return b, nil
}

func decodeOutcome(b []byte) (outcome, error) {
	var o outcome
	// Within the bounds of a ledger row; without a question it is shorter.
	most := binding.MaxOutcomeBytes
	err := strictjson.Unmarshal(b, &o, strictjson.Options{MaxBytes: most, MaxDepth: 64, AllowCaseVariants: true, RequireFields: true})
	if err != nil {
		return outcome{}, err
	}
	if o.Asked == nil {
		if len(b) > maxOutcome {
			return outcome{}, errors.New("call: a result is over its bound")
		}
		return o, nil
	}
	o.Asked.interrupt, err = event.DecodeInterrupt(o.Asked.Interrupt, event.Bounds{})
	return o, err
}
