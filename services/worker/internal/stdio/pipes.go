package stdio

import (
	"bufio"
	"context"
	"errors"
	"io"

	"cofferdam.dev/pkg/event"
	"cofferdam.dev/pkg/fault"
)

// Bounds of what a program may write in one turn, whatever it says. An event
// budget of its own has the run.
const (
	maxLines = 2 * event.MaxRunEvents
	maxBytes = 2 * event.MaxRunBytes
)

var (
	errLongLine = errors.New("line of more than 1 MiB")
	errFlood    = errors.New("more output than a turn may have")
	errCutOff   = errors.New("output ended within a line")
)

// output is a program's standard output as lines.
type output struct {
	// lines is closed at the end of the output.
	lines chan outputLine
	// maxLines is maxLines, or less in a test.
	maxLines int
	// ignored is closed when nobody wants the rest.
	ignored chan struct{}
}

type outputLine struct {
	text []byte
	err  error // what was wrong with the output; nothing more is read then
}

func newOutput(most int) *output {
	return &output{lines: make(chan outputLine), maxLines: most, ignored: make(chan struct{})}
}

// read reads until the end of the output, and is the only owner of r. What nobody
// wants any more it reads all the same: a program must not be held back by it.
func (o *output) read(r io.Reader) {
	defer close(o.lines)
	buffered := bufio.NewReaderSize(r, 64<<10)
	for lines, bytes := 0, 0; ; {
		text, err := readLine(buffered)
		if lines, bytes = lines+1, bytes+len(text); err == nil && (lines > o.maxLines || bytes > maxBytes) {
			err = errFlood
		}
		if errors.Is(err, io.EOF) {
			return
		}
		select {
		case o.lines <- outputLine{text, err}:
		case <-o.ignored:
			err = errFlood // read no lines, only bytes
		}
		if err != nil {
			_, _ = io.Copy(io.Discard, buffered) // until the program has ended, whose fate says the rest
			return
		}
	}
}

// readLine gives a line without its line feed. io.EOF is the end.
func readLine(r *bufio.Reader) ([]byte, error) {
	var out []byte
	for {
		part, err := r.ReadSlice('\n')
		out = append(out, part...)
		switch {
		case err == nil && len(out) <= maxLine+1:
			return out[:len(out)-1], nil
		case len(out) > maxLine:
			return nil, errLongLine
		case errors.Is(err, bufio.ErrBufferFull):
		case len(out) > 0:
			return nil, errCutOff
		default: // a world that is gone ends the output in whatever way
			return nil, io.EOF
		}
	}
}

// input is a program's standard input. A program that does not read holds back
// whoever has something to say to it, and nobody else.
type input struct {
	queue chan []byte
	// finish is closed when nothing more will be said.
	finish chan struct{}
	// done is closed once nothing is written any more.
	done chan struct{}
}

// queued is how many requests may wait for the program to read.
const queued = 8

func newInput() *input {
	return &input{queue: make(chan []byte, queued), finish: make(chan struct{}), done: make(chan struct{})}
}

// write writes what is queued until finish, and then closes w. A program that
// reads no more is no error: its output says what it has to.
func (i *input) write(w io.WriteCloser) {
	defer close(i.done)
	defer func() { _ = w.Close() }()
	for {
		select {
		case text := <-i.queue:
			if _, err := w.Write(text); err != nil {
				return
			}
			continue
		default:
		}
		select {
		case text := <-i.queue:
			if _, err := w.Write(text); err != nil {
				return
			}
		case <-i.finish:
			if len(i.queue) == 0 {
				return
			}
		}
	}
}

// send queues a request.
func (i *input) send(ctx context.Context, request any) error {
	text, err := line(request)
	if err != nil {
		return err
	}
	select {
	case i.queue <- text:
		return nil
	case <-i.done:
		return nil
	case <-ctx.Done():
		return fault.From(ctx.Err(), "stdio.send")
	}
}
