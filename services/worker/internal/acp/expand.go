package acp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"cofferdam.dev/services/worker/internal/loopback"
)

// Variables of a preset.
const (
	varModelBaseURL   = "MODEL_BASE_URL"
	varModelBaseURLV1 = "MODEL_BASE_URL_V1"
	varModel          = "MODEL"
	varModelKey       = "MODEL_KEY"
	varMCPURL         = "MCP_URL"
)

// variable is ${NAME}; nothing else is expanded, and nothing of this form may be
// anything else.
var variable = regexp.MustCompile(`\$\{([^}]*)\}?`)

// variables have the values of one start.
type variables map[string]string

func variablesOf(e loopback.Endpoints, model string) variables {
	return variables{
		varModelBaseURL: e.ModelBaseURL, varModelBaseURLV1: e.ModelBaseURLV1, varModel: model,
		varModelKey: e.ModelKey, varMCPURL: e.MCPURL,
	}
}

// expand puts the values in, each changed by quote.
func (v variables) expand(s string, quote func(string) string) string {
	return variable.ReplaceAllStringFunc(s, func(m string) string {
		return quote(v[strings.TrimSuffix(strings.TrimPrefix(m, "${"), "}")])
	})
}

func asIs(s string) string { return s }

// inJSON is a value as it stands within a string of JSON.
func inJSON(s string) string {
	b, err := json.Marshal(s)
	if err != nil { // a string always marshals
		return ""
	}
	return string(b[1 : len(b)-1])
}

// unexpandable is an error for a variable that there is not.
func unexpandable(field, s string) error {
	for _, m := range variable.FindAllStringSubmatch(s, -1) {
		if !strings.HasSuffix(m[0], "}") || !slices.Contains([]string{varModelBaseURL, varModelBaseURLV1, varModel, varModelKey, varMCPURL}, m[1]) {
			return fmt.Errorf("%s: %s is no variable of a preset", field, m[0])
		}
	}
	return nil
}

// fileText is the content of a home file: the text of a string, the JSON of
// anything else.
func fileText(raw json.RawMessage) (string, error) {
	trimmed := bytes.TrimSpace(raw)
	if len(trimmed) == 0 || string(trimmed) == "null" {
		return "", fmt.Errorf("neither text nor JSON")
	}
	var text string
	if trimmed[0] != '"' {
		return string(trimmed) + "\n", nil
	}
	err := json.Unmarshal(trimmed, &text)
	return text, err
}

// homeFile is a home file's content with the variables in it.
func (v variables) homeFile(raw json.RawMessage) (string, error) {
	text, err := fileText(raw)
	if err != nil {
		return "", err
	}
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte(`"`)) {
		return v.expand(text, asIs), nil
	}
	return v.expand(text, inJSON), nil
}
