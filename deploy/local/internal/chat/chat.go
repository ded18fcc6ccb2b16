// Package chat is a conversation on a terminal.
package chat

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"cofferdam.dev/deploy/local/internal/apiclient"
	"cofferdam.dev/pkg/event"
)

const (
	// maxMessage bounds a message, in bytes, as the API does.
	maxMessage    = 256 << 10
	maxArguments  = 200
	cancelTimeout = 30 * time.Second
)

// Config of a chat.
type Config struct {
	API          *apiclient.Client
	Agent        string
	Conversation string
	// In gives one message, or one answer to a question of the agent, a line; its end
	// ends the chat.
	In io.Reader
	// Out gets the agent's text, People everything else.
	Out, People io.Writer
	// Prompt stands before each message on People; empty for none.
	Prompt string
	// Interrupt gives the context of one turn: while it lasts, the user can end
	// the turn with it. Nil never ends one.
	Interrupt func(context.Context) (context.Context, context.CancelFunc)

	lines *bufio.Scanner
}

// Run talks until In ends, ctx does, or something fails that is not one turn's
// alone. A question that the conversation waits for already is asked first; one that
// is open when In ends stays open.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Interrupt == nil {
		cfg.Interrupt = context.WithCancel
	}
	cfg.lines = bufio.NewScanner(cfg.In)
	cfg.lines.Buffer(nil, maxMessage)
	if err := cfg.answer(ctx); err != nil {
		return err
	}
	for ctx.Err() == nil {
		tell(cfg.People, "%s", cfg.Prompt)
		message, more := cfg.line()
		if !more {
			break
		}
		if message != "" {
			if err := cfg.turn(ctx, message); err != nil {
				return err
			}
		}
	}
	if err := cfg.lines.Err(); err != nil {
		return fmt.Errorf("chat: read a message of at most %d bytes: %w", maxMessage, err)
	}
	return ctx.Err()
}

func (c Config) turn(ctx context.Context, message string) error {
	err := c.follow(ctx, func(turn context.Context) (apiclient.Started, error) {
		return c.API.Start(turn, apiclient.StartRequest{AgentID: c.Agent, ConversationID: c.Conversation, Message: message})
	})
	if err != nil {
		return err
	}
	return c.answer(ctx)
}

// answer asks the user what the conversation waits for, until it waits for nothing or
// the input ends.
func (c Config) answer(ctx context.Context) error {
	for {
		pending, err := c.API.PendingInterrupt(ctx, c.Agent, c.Conversation)
		if err != nil || pending == nil {
			return err
		}
		decision, answered := c.ask(*pending.Interrupt)
		if !answered {
			tell(c.People, "\n[the agent waits for the answer: go on with --conversation %s]\n", clean(c.Conversation))
			return nil
		}
		err = c.follow(ctx, func(turn context.Context) (apiclient.Started, error) { return c.API.Resume(turn, *pending, decision) })
		if err != nil {
			return err
		}
	}
}

// follow begins a run and shows it to its end, or ends it when the user does.
func (c Config) follow(ctx context.Context, begin func(context.Context) (apiclient.Started, error)) error {
	turn, done := c.Interrupt(ctx)
	defer done()
	started, err := begin(turn)
	if err != nil {
		return err
	}
	err = c.API.Follow(turn, started.RunID, c.show)
	if err == nil || turn.Err() == nil {
		return err
	}
	return c.cancel(ctx, started.RunID)
}

// cancel ends a turn that the user has interrupted, and says what was confirmed.
func (c Config) cancel(ctx context.Context, run string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	out, err := c.API.Cancel(ctx, run)
	if err != nil {
		return err
	}
	note := "cancelled"
	if !out.Confirmed {
		note = "cancel is not confirmed yet"
	}
	tell(c.People, "\n[%s; side effects: %s]\n", note, out.SideEffects)
	return nil
}

// show prints one event.
func (c Config) show(e apiclient.Event) error {
	switch d := e.Data.(type) {
	case event.TextDelta:
		if _, err := io.WriteString(c.Out, clean(d.Delta)); err != nil {
			return err
		}
	case event.TextFinished:
		_, err := io.WriteString(c.Out, "\n")
		return err
	case event.ToolStarted:
		tell(c.People, "[%s %s]\n", clean(d.ToolName), shorten(clean(string(d.Arguments))))
	case event.ToolError:
		tell(c.People, "[failed: %s: %s]\n", clean(d.Code), clean(d.Message))
	case event.RunError:
		tell(c.People, "[the run failed: %s: %s]\n", clean(d.Code), clean(d.Message))
	case event.RunCancelled:
		tell(c.People, "[cancelled; side effects: %s]\n", d.SideEffectStatus)
	}
	return nil
}

func tell(w io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...) // who has closed stderr wants to hear nothing
}

// clean takes out what a terminal would obey: an agent's text may be anybody's.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}

func shorten(text string) string {
	if len(text) <= maxArguments {
		return text
	}
	return strings.ToValidUTF8(text[:maxArguments], "") + " …"
}
