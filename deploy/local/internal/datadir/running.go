package datadir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

const maxRunningBytes = 64 << 10

// Running says where a running stack answers.
type Running struct {
	// API and Operator are base URLs.
	API      string   `json:"api"`
	Operator string   `json:"operator"`
	Agents   []string `json:"agents"`
	// PID of `cofferdam up`.
	PID int `json:"pid"`
}

// SetRunning tells those who read the folder where the stack answers.
func (d Dir) SetRunning(r Running) error {
	content, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return Write(d.Running(), append(content, '\n'))
}

// ClearRunning takes that back.
func (d Dir) ClearRunning() error {
	if err := os.Remove(d.Running()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// ReadRunning reads where the stack of this folder answers. It may have been
// killed since.
func (d Dir) ReadRunning() (Running, error) {
	var r Running
	file, err := os.Open(d.Running())
	if errors.Is(err, fs.ErrNotExist) {
		return r, fmt.Errorf("nothing runs on %s: start `cofferdam up` first, or name its folder with --data", d.path)
	}
	if err != nil {
		return r, err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxRunningBytes))
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(content, &r); err != nil {
		return r, fmt.Errorf("%s: %w", d.Running(), err)
	}
	return r, nil
}
