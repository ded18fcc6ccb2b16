package call

import (
	"encoding/json"
	"errors"
	"strconv"

	"cofferdam.dev/pkg/strictjson"
	"cofferdam.dev/services/toolbroker/internal/project"
)

// outcome is a result as the ledger keeps it.
type outcome struct {
	Result    json.RawMessage `json:"result"`
	IsError   bool            `json:"is_error,omitempty"`
	Truncated bool            `json:"truncated,omitempty"`
	Ref       string          `json:"result_ref,omitempty"`
}

// maxOutcome is what a result and its flags can take, in bytes.
const (
	maxOutcome = project.MaxBytes + 512
	maxRef     = 128
)

func encodeOutcome(r project.Result, ref string) ([]byte, error) {
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
	return append(b, '}'), nil
}

func decodeOutcome(b []byte) (r project.Result, ref string, err error) {
	var o outcome
	err = strictjson.Unmarshal(b, &o, strictjson.Options{MaxBytes: maxOutcome, MaxDepth: 64, AllowCaseVariants: true, RequireFields: true})
	if err != nil {
		return project.Result{}, "", err
	}
	return project.Result{JSON: o.Result, IsError: o.IsError, Truncated: o.Truncated}, o.Ref, nil
}
