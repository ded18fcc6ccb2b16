package proxy

import (
	"errors"
	"io"

	"cofferdam.dev/pkg/fault"
)

// relayStream passes the events of a stream on, each when it has come and only
// after it was looked at. It returns nil after the terminal of the wire. An
// answer begins with its first event, so what fails before that is still told
// with a status.
func relayStream(out *response, in *answer, f follower, l Limits) error {
	frames := newFrameReader(in, l.MaxFrame)
	for {
		frame, err := frames.next()
		out.usage = f.usage()
		if err != nil {
			if f.mayEnd() && endsHere(err) {
				return nil
			}
			return streamFailure(err)
		}
		if frame.comment {
			if err := out.keepAlive(); err != nil {
				return err
			}
			continue
		}
		if in.key.in(frame.data) {
			return failed(errEcho)
		}
		if out.bytes+int64(len(frame.data)) > l.MaxStream {
			return failed(errTooLarge)
		}
		s, err := f.event(frame.data)
		out.usage = f.usage()
		if err != nil {
			return err
		}
		if s.failed && !out.begun {
			return failed(errInAnswer)
		}
		if s.failed {
			out.tell(fault.ModelFailed)
		}
		if err := out.event(s.name, s.data); err != nil {
			return err
		}
		if s.last {
			in.settle()
			out.ended = true
		}
		switch {
		case s.failed:
			return failed(errInAnswer)
		case s.last:
			return nil
		case f.mayEnd():
			in.idle = min(in.idle, l.EndTimeout)
		}
	}
}

// endsHere reports whether a stream that is whole simply came to its end, or
// stayed open without another word.
func endsHere(err error) bool {
	if errors.Is(err, io.EOF) {
		return true
	}
	reason, ok := errors.AsType[reasonError](err)
	return ok && reason == errIdle
}

func streamFailure(err error) error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	if reason, ok := errors.AsType[reasonError](err); ok {
		return failed(reason)
	}
	return failed(errCut) // the end of the stream, without its terminal
}

// relayWhole passes on an answer that is not streamed. It is read to its end
// first: what is cut never begins.
func relayWhole(out *response, in *answer, f follower, l Limits) error {
	data, err := io.ReadAll(io.LimitReader(in, l.MaxAnswer+1))
	if err != nil {
		return streamFailure(err)
	}
	if int64(len(data)) > l.MaxAnswer {
		return failed(errTooLarge)
	}
	if in.key.in(data) {
		return failed(errEcho)
	}
	body, err := f.whole(data)
	out.usage = f.usage()
	if err != nil {
		return err
	}
	return out.whole(body)
}
