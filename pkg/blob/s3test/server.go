// Package s3test gives tests an S3 server: Versity's gateway on loopback
// (tools/versitygw), which a test starts itself.
package s3test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cofferdam.dev/pkg/blob/blobstore"
)

// startTimeout is how long the server may take to answer.
const startTimeout = 30 * time.Second

// Server gives the address of the empty bucket of a server that lasts as long as the
// test.
func Server(tb testing.TB) blobstore.Address {
	tb.Helper()
	credentials := filepath.Join(tb.TempDir(), "credentials")
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), program(tb), "--data", tb.TempDir(), "--credentials", credentials)
	cmd.Stderr = tb.Output()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = stdin.Close() // it ends with its input
		if err := cmd.Wait(); err != nil {
			tb.Errorf("S3 server: %v", err)
		}
	})
	found := make(chan string, 1)
	go func() { found <- ready(stdout) }()
	select {
	case url := <-found:
		if url == "" {
			tb.Fatal("the S3 server did not say where it is")
		}
		return blobstore.Address{URL: url, CredentialsFile: credentials}
	case <-time.After(startTimeout):
		_ = stdin.Close()
		tb.Fatal("the S3 server did not answer")
	}
	return blobstore.Address{}
}

// ready reads what the server says until it is up.
func ready(stdout io.Reader) (url string) {
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		var r struct {
			Endpoint string `json:"endpoint"`
			Bucket   string `json:"bucket"`
		}
		if json.Unmarshal(lines.Bytes(), &r) == nil && r.Endpoint != "" {
			return fmt.Sprintf("s3://%s?endpoint=%s&path_style=true", r.Bucket, r.Endpoint)
		}
	}
	return ""
}

// program finds what `make bin/cofferdam-s3` builds.
func program(tb testing.TB) string {
	tb.Helper()
	dir := os.Getenv("COFFERDAM_BIN_DIR")
	if dir == "" {
		out, err := exec.CommandContext(tb.Context(), "go", "env", "GOWORK").Output()
		if err != nil {
			tb.Fatal(err)
		}
		dir = filepath.Join(filepath.Dir(strings.TrimSpace(string(out))), "bin")
	}
	path := filepath.Join(dir, "cofferdam-s3")
	if _, err := os.Stat(path); err != nil {
		tb.Fatalf("%v: run `make bin/cofferdam-s3`", err)
	}
	return path
}
