package e2e

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cofferdam.dev/tests/internal/apiclient"
	"cofferdam.dev/tests/stack"
)

// A text file that comes with a message reaches the model; one that the model
// cannot read is named to it and not passed off as read.
func TestFilesThatComeWithAMessageReachTheModel(t *testing.T) {
	t.Parallel()
	w := theStack(t)
	c := w.talk()
	line, hidden := "in the file stands "+rand.Text(), []byte("hidden "+rand.Text())
	c.tell(t, "look",
		apiclient.File{Name: "Notiz – größer.txt", MIMEType: "text/plain", Data: []byte(line)},
		apiclient.File{Name: "picture.png", MIMEType: "image/png", Data: hidden},
	)
	text := c.tell(t, "What do you remember?").text(t)
	if !strings.Contains(text, line) || !strings.Contains(text, "Notiz – größer.txt") {
		t.Errorf("the file is missing: %q", text)
	}
	if !strings.Contains(text, "picture.png") || strings.Contains(text, string(hidden)) {
		t.Errorf("the picture: %q", text)
	}
}

// A name is for people. It leads nowhere.
func TestTheNameOfAFileIsNoPath(t *testing.T) {
	t.Parallel()
	w := theStack(t)
	key := filepath.Join(w.Data, "keys", "issuer.jwk")
	before, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../../keys/issuer.jwk", "../keys/issuer.jwk", key, `..\x`, "a\u202eb", "CON"} {
		c := w.talk()
		s, err := w.user.Start(t.Context(), apiclient.Start{
			AgentID: stack.Agent, ConversationID: c.conversation, Message: "look",
			Files: []apiclient.File{{Name: name, MIMEType: "text/plain", Data: []byte("content")}},
		})
		if err != nil { // refused at the door is as good
			if code := apiclient.CodeOf(err); code != "invalid_request" {
				t.Errorf("%q: %v", name, err)
			}
			continue
		}
		r := c.end(t, s)
		t.Logf("%q: %s %s", name, r.last().Type, r.last().Data)
		if r.last().Type == "run.error" {
			if f := r.failure(t); f.Code == "internal" {
				t.Errorf("%q: failed as %+v", name, f)
			}
		}
	}
	if after, err := os.ReadFile(key); err != nil || !bytes.Equal(before, after) {
		t.Errorf("%s was changed (%v)", key, err)
	}
}

func TestAFileOfTheLargestSizeIsTaken(t *testing.T) {
	t.Parallel()
	w := theStack(t)
	c := w.talk()
	last := "the end is " + rand.Text()
	big := append(bytes.Repeat([]byte("x"), 8<<20-len(last)), last...)
	r := c.say(t, "look", apiclient.File{Name: "big.bin", MIMEType: "application/octet-stream", Data: big})
	r.finished(t)
	_, err := w.user.Start(t.Context(), apiclient.Start{
		AgentID: stack.Agent, ConversationID: c.conversation, Message: "look",
		Files: []apiclient.File{{Name: "big.bin", MIMEType: "application/octet-stream", Data: append(big, 'x')}},
	})
	if code := apiclient.CodeOf(err); code != "invalid_request" && code != "request_too_large" {
		t.Errorf("one byte more: %v", err)
	}
}
