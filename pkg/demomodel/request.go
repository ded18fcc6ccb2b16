package demomodel

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
)

// maxTools bounds how many tools one request may offer.
const maxTools = 1024

// role is whose a message is.
type role int

const (
	roleOther role = iota // only context
	roleUser
	roleAssistant
	roleTool
)

// request is the part of a request that the model reads, whichever wire it came
// on. What else the wire knows is accepted and has no effect.
type request struct {
	model string
	// instructions are the system's, where the wire keeps them apart.
	instructions string
	messages     []message
	tools        []offer
	// schema is what the answer has to be valid by; nil where it is free.
	schema json.RawMessage
	stream bool
	// withUsage asks for token counts in a stream.
	withUsage bool

	// digest covers model and messages; every id is made from it.
	digest [sha256.Size]byte
}

type message struct {
	role role
	// texts are the blocks of text; what is no text is left out.
	texts []string
	// asked are the calls that an assistant made here, by id.
	asked map[string]string
	// callID says which call a result belongs to, and tool of which tool it is,
	// where that is known.
	callID, tool string
	// system tells that the text is the system's or the developer's.
	system bool
}

func (m message) text() string { return strings.Join(m.texts, "\n") }

// offer is a tool that the model may ask for.
type offer struct {
	namespace, name string
	// properties of its arguments, and which of them are required.
	properties map[string]property
	required   []string
}

type property struct {
	Type any `json:"type"`
}

// parameters is the part of a JSON Schema that tells a tool's arguments.
type parameters struct {
	Properties map[string]property `json:"properties"`
	Required   []string            `json:"required"`
}

// offered makes an offer. A schema that cannot be read offers a tool without
// known arguments: only >>bash looks at them.
func offered(namespace, name string, schema json.RawMessage) offer {
	var p parameters
	if json.Unmarshal(schema, &p) != nil {
		p = parameters{}
	}
	return offer{namespace: namespace, name: name, properties: p.Properties, required: p.Required}
}

// toolCall is a call that the model makes.
type toolCall struct {
	id, namespace, name, args string
}

// complete checks what holds on every wire and finishes the request. sealed is
// what the ids are made of, beside the model.
func (r *request) complete(sealed []byte) error {
	if len(r.messages) == 0 {
		return errors.New("messages must hold at least one message")
	}
	if len(r.tools) > maxTools {
		return fmt.Errorf("tools must hold at most %d tools", maxTools)
	}
	h := sha256.New()
	h.Write([]byte(strconv.Quote(r.model)))
	h.Write(sealed)
	h.Sum(r.digest[:0])
	r.nameResults()
	return nil
}

// nameResults finds out which tool each result is of. Ids of calls may come
// again in later turns: the call before the result counts.
func (r *request) nameResults() {
	called := make(map[string]string)
	for i := range r.messages {
		m := &r.messages[i]
		maps.Copy(called, m.asked)
		if m.role == roleTool && m.tool == "" {
			m.tool = called[m.callID]
		}
	}
}

// id is the same for the same request and label, and for no other.
func (r *request) id(label string) string {
	sum := sha256.Sum256(append(r.digest[:], label...))
	return hex.EncodeToString(sum[:12])
}

// callID is the id of the answer's nth tool call. It differs from every other
// call id of the conversation, because the conversation has grown in between.
func (r *request) callID(n int) string { return "call_" + r.id("call "+strconv.Itoa(n)) }

// promptWords counts what the model was sent, in words: its tokens.
func (r *request) promptWords() int {
	n := len(strings.Fields(r.instructions))
	for _, m := range r.messages {
		for _, t := range m.texts {
			n += len(strings.Fields(t))
		}
	}
	return n
}
