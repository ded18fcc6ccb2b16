package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Bounds of a File.
const (
	// DefaultMaxBytes is the size from which on a new file is begun.
	DefaultMaxBytes = 128 << 20
	// MinMaxBytes is the least that it may be set to.
	MinMaxBytes = 64 << 10
	// maxBatch is how many records share one write and one fsync.
	maxBatch = 256
	// maxRecord bounds one record, in bytes.
	maxRecord = 8 << 10
)

// ErrClosed says that no more records are taken.
var ErrClosed = errors.New("audit: closed")

// File keeps records in a file, one JSON object a line. Calls that come together
// share one fsync. It belongs to one process: a second one is refused.
type File struct {
	queue  chan entry
	stop   chan struct{} // no more records are taken
	closed chan struct{} // the last ones are written
	once   sync.Once
	writer sync.WaitGroup
	sick   atomic.Pointer[error]
}

type entry struct {
	line []byte
	done chan<- error // has room for the answer
}

// OpenFile opens or creates the file at path, with mode 0600. At maxBytes it is
// renamed to path with a time added, and a new one is begun; what was written is
// never removed.
func OpenFile(path string, maxBytes int64) (*File, error) {
	d := &disk{path: path, most: max(maxBytes, MinMaxBytes)}
	if err := d.open(); err != nil {
		return nil, err
	}
	f := &File{queue: make(chan entry, maxBatch), stop: make(chan struct{}), closed: make(chan struct{})}
	f.writer.Go(func() { f.run(d) })
	return f, nil
}

// Append implements Log.
func (f *File) Append(ctx context.Context, r Record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if len(line) > maxRecord {
		return fmt.Errorf("audit: a record of more than %d bytes", maxRecord)
	}
	return f.put(ctx, append(line, '\n'))
}

// put writes a line, or finds out without one whether the file can be written.
func (f *File) put(ctx context.Context, line []byte) error {
	done := make(chan error, 1)
	select {
	case <-f.stop:
		return ErrClosed
	default:
	}
	select {
	case f.queue <- entry{line, done}:
	case <-f.stop:
		return ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("audit: %w", ctx.Err())
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("audit: %w", ctx.Err())
	case <-f.closed:
		select { // it may have been among the last
		case err := <-done:
			return err
		default:
			return ErrClosed
		}
	}
}

// Check says whether records can be written. After a failure it tries again.
func (f *File) Check(ctx context.Context) error {
	if f.sick.Load() == nil {
		return nil
	}
	return f.put(ctx, nil)
}

// Close writes what was taken and closes the file.
func (f *File) Close() error {
	f.once.Do(func() { close(f.stop) })
	f.writer.Wait()
	return nil
}

func (f *File) run(d *disk) {
	defer close(f.closed)
	defer d.close()
	for {
		select {
		case first := <-f.queue:
			f.write(d, first)
		case <-f.stop:
			for {
				select {
				case first := <-f.queue:
					f.write(d, first)
				default:
					return
				}
			}
		}
	}
}

func (f *File) write(d *disk, first entry) {
	batch := f.gather(first)
	var lines bytes.Buffer
	for _, e := range batch {
		lines.Write(e.line)
	}
	err := d.write(lines.Bytes())
	if err != nil {
		f.sick.Store(&err)
	} else {
		f.sick.Store(nil)
	}
	for _, e := range batch {
		e.done <- err
	}
}

// gather takes what else is waiting.
func (f *File) gather(first entry) []entry {
	batch := []entry{first}
	for len(batch) < maxBatch {
		select {
		case e := <-f.queue:
			batch = append(batch, e)
		default:
			return batch
		}
	}
	return batch
}
