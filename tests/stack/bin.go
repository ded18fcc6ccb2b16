package stack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// BinDirVariable names the folder with the built programs; `make test` sets it.
const BinDirVariable = "COFFERDAM_BIN_DIR"

// ErrNoPrograms says how to get programs to test.
var ErrNoPrograms = errors.New(BinDirVariable + " is not set: run `make build`, then `" + BinDirVariable +
	"=$PWD/bin go test ./tests/...`, or `make test`, which does both")

// Command is the path of the command `cofferdam`. The error is [ErrNoPrograms]
// where nobody said where it is.
func Command() (string, error) {
	dir := os.Getenv(BinDirVariable)
	if dir == "" {
		return "", ErrNoPrograms
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	path := filepath.Join(abs, "cofferdam")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s: %w: run `make build`", BinDirVariable, err)
	}
	return path, nil
}

// FailpointCommand is the path of `cofferdam` among programs that have the points of
// [cofferdam.dev/pkg/failpoint].
func FailpointCommand() (string, error) {
	path, err := Command()
	if err != nil {
		return "", err
	}
	path = filepath.Join(filepath.Dir(path), "failpoint", "cofferdam")
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: run `make failpoints`", err)
	}
	return path, nil
}

// Need gives the command, or ends the test: by skipping it where a person runs
// tests without having built anything, by failing it in CI and where the
// variable leads nowhere.
func Need(tb testing.TB) string {
	tb.Helper()
	return need(tb, Command)
}

// NeedFailpoints is Need for [FailpointCommand].
func NeedFailpoints(tb testing.TB) string {
	tb.Helper()
	return need(tb, FailpointCommand)
}

func need(tb testing.TB, command func() (string, error)) string {
	tb.Helper()
	path, err := command()
	switch {
	case err == nil:
		return path
	case errors.Is(err, ErrNoPrograms) && os.Getenv("CI") != "true":
		tb.Skip("NOT TESTED: " + err.Error())
	default:
		tb.Fatal(err)
	}
	return ""
}
