// Command cofferdam-s3 is an S3 server for tests: Versity's gateway on a folder. It
// listens on loopback, unless --listen says otherwise, and has one bucket and one user.
//
// Once it answers it prints one line of JSON on stdout, after what the gateway has
// to say,
//
//	{"ready":true,"endpoint":"http://127.0.0.1:PORT","bucket":"files"}
//
// and it ends on SIGTERM, on SIGINT, and, unless --exit-with-stdin=false says otherwise,
// when its standard input does. Who may use it
// stands in the file of --credentials, in the form of AWS's shared credentials; it is
// written where it is not there.
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/s3api"
	"github.com/versity/versitygw/s3api/middlewares"
)

const (
	bucket = "files"
	region = "us-east-1"
	mode   = 0o700
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "cofferdam-s3:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	fs := flag.NewFlagSet("cofferdam-s3", flag.ContinueOnError)
	fs.SetOutput(stderr)
	data := fs.String("data", "", "`folder` of the objects; it must exist")
	credentials := fs.String("credentials", "", "`file` with the credentials of the one user, written where it is not there")
	listen := fs.String("listen", "127.0.0.1:0", "`HOST:PORT`, where port 0 takes a free one")
	withStdin := fs.Bool("exit-with-stdin", true, "end when stdin is closed")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if info, err := os.Stat(*data); err != nil || !info.IsDir() {
		return fmt.Errorf("--data: a folder that exists, got %q", *data)
	}
	user, err := userOf(*credentials)
	if err != nil {
		return fmt.Errorf("--credentials: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if *withStdin {
		go func() { // ends with the process
			_, _ = io.Copy(io.Discard, stdin)
			cancel()
		}()
	}
	socket, ended, err := startGateway(ctx, *data, user)
	if err != nil {
		return err
	}
	defer func() {
		cancel()
		err = errors.Join(err, <-ended)
	}()
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", *listen)
	if err != nil {
		return err
	}
	ready, err := json.Marshal(map[string]any{"ready": true, "endpoint": "http://" + l.Addr().String(), "bucket": bucket})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(stdout, "%s\n", ready); err != nil {
		return err
	}
	return forward(ctx, l, socket)
}

// startGateway gives the socket of a gateway that ends with ctx. The gateway does not
// say which port it got, so that it gets none.
func startGateway(ctx context.Context, data string, user middlewares.RootUserConfig) (socket string, ended <-chan error, err error) {
	objects, sidecar := filepath.Join(data, "objects"), filepath.Join(data, "attributes")
	if err := errors.Join(os.MkdirAll(filepath.Join(objects, bucket), mode), os.MkdirAll(filepath.Join(sidecar, bucket), mode)); err != nil {
		return "", nil, err
	}
	attributes, err := meta.NewSideCar(sidecar) // not every file system of a test has extended attributes
	if err != nil {
		return "", nil, err
	}
	be, err := posix.New(objects, attributes, posix.PosixOpts{SideCarDir: sidecar, ValidateBucketNames: true})
	if err != nil {
		return "", nil, err
	}
	listening := make(chan struct{})
	iam := auth.NewIAMServiceSingle(auth.Account{Access: user.Access, Secret: user.Secret, Role: auth.RoleAdmin})
	srv, err := s3api.New(be, user, region, iam, nil, nil, nil, nil,
		s3api.WithQuiet(), s3api.WithConcurrencyLimiter(1024, 1024), s3api.WithOnListen(sync.OnceFunc(func() { close(listening) })))
	if err != nil {
		return "", nil, err
	}
	// A socket has a short path, and the folder of a test may have a long one.
	folder, err := os.MkdirTemp("", "s3-")
	if err != nil {
		return "", nil, err
	}
	socket = filepath.Join(folder, "s3.sock")
	done := make(chan error, 1)
	go func() {
		err := srv.ServeMultiPort([]string{socket})
		if ctx.Err() != nil { // it calls its shutdown an error
			err = nil
		}
		done <- errors.Join(err, os.RemoveAll(folder))
	}()
	go func() {
		<-ctx.Done()
		_ = srv.ShutDown() // what serves says how it ended
	}()
	select {
	case <-listening:
		return socket, done, nil
	case err := <-done:
		return "", nil, fmt.Errorf("gateway: %w", err)
	}
}

// forward takes connections until ctx ends.
func forward(ctx context.Context, l net.Listener, socket string) error {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	var all sync.WaitGroup
	defer all.Wait()
	for {
		c, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		all.Go(func() { join(ctx, c, socket) })
	}
}

// join copies both ways until one of them ends.
func join(ctx context.Context, c net.Conn, socket string) {
	defer func() { _ = c.Close() }()
	var d net.Dialer
	up, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _, _ = c.Close(), up.Close() })()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(c, up)
		_ = c.Close()
	})
	_, _ = io.Copy(up, c)
	_ = up.Close()
	back.Wait()
}

// userOf reads who may use the server, and makes somebody up where the file is not
// there.
func userOf(path string) (user middlewares.RootUserConfig, err error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		user = middlewares.RootUserConfig{Access: rand.Text(), Secret: rand.Text()}
		file := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = %s\n", user.Access, user.Secret)
		return user, os.WriteFile(path, []byte(file), 0o600)
	}
	if err != nil {
		return user, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), "=")
		switch strings.TrimSpace(name) {
		case "aws_access_key_id":
			user.Access = strings.TrimSpace(value)
		case "aws_secret_access_key":
			user.Secret = strings.TrimSpace(value)
		}
	}
	if err := lines.Err(); err != nil || user.Access == "" || user.Secret == "" {
		return user, errors.Join(errors.New("no aws_access_key_id and aws_secret_access_key"), err)
	}
	return user, nil
}
