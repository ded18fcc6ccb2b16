package proxy

import (
	"net/http"
	"regexp"
	"strings"
)

const (
	headerVersion = "Anthropic-Version"
	headerBeta    = "Anthropic-Beta"
	// anthropicVersion is sent where the caller names none.
	anthropicVersion = "2023-06-01"
	// maxBetas bounds how many features one request may switch on.
	maxBetas = 32
)

var (
	versionForm = regexp.MustCompile(`^20[0-9]{2}-[01][0-9]-[0-3][0-9]$`)
	betaForm    = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,63}$`)
)

// passedHeader is what goes on of a caller's header: the version and the
// features that the wire of Anthropic keeps there. What a feature would make the
// endpoint do is asked for in the body, and refused there.
func passedHeader(to route, h http.Header) (http.Header, error) {
	out := make(http.Header)
	if to.wire != AnthropicMessages {
		return out, nil
	}
	version := h.Get(headerVersion)
	if version == "" {
		version = anthropicVersion
	}
	if !versionForm.MatchString(version) {
		return nil, invalid("anthropic-version: a date such as " + anthropicVersion)
	}
	out.Set(headerVersion, version)
	var betas []string
	for _, list := range h.Values(headerBeta) {
		for name := range strings.SplitSeq(list, ",") {
			if name = strings.TrimSpace(name); name == "" {
				continue
			}
			if !betaForm.MatchString(name) || len(betas) == maxBetas {
				return nil, invalid("anthropic-beta: at most 32 names of features")
			}
			betas = append(betas, name)
		}
	}
	if len(betas) > 0 {
		out.Set(headerBeta, strings.Join(betas, ","))
	}
	return out, nil
}

// credential puts the key where the wire has it.
func (w Wire) credential(h http.Header, key secret) {
	switch {
	case key.value == "":
	case w == AnthropicMessages:
		h.Set("X-Api-Key", key.value)
	case w == Gemini:
		h.Set("X-Goog-Api-Key", key.value)
	default:
		h.Set("Authorization", "Bearer "+key.value)
	}
}
