// Command cofferdam-ferretdb is a MongoDB wire server for tests: FerretDB on
// SQLite, behind a proxy that lets one write command through at a time.
//
// FerretDB alone is not atomic: two clients both win a compare-and-set. One
// writer at a time makes it so for every client of the proxy, from any process.
// The proxy also spares FerretDB the reading of a whole collection for each of them.
// It proves how Cofferdam's MongoDB back end uses the wire; how that back end
// behaves under load, and with replicas, is for a real server to show.
//
// Once it answers it prints one line of JSON on stdout,
//
//	{"ready":true,"uri":"mongodb://127.0.0.1:PORT/"}
//
// and it ends on SIGTERM, on SIGINT, and, unless --exit-with-stdin=false says
// otherwise, when its standard input does. It asks nobody who they are. What it
// stored is in --data, and is gone where that is a temporary folder.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "cofferdam-ferretdb:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	fs := flag.NewFlagSet("cofferdam-ferretdb", flag.ContinueOnError)
	fs.SetOutput(stderr)
	data := fs.String("data", "", "`folder` of the SQLite files; it must exist")
	listen := fs.String("listen", "127.0.0.1:0", "`HOST:PORT` of the proxy, where port 0 takes a free one; whoever reaches it may read and write everything")
	withStdin := fs.Bool("exit-with-stdin", true, "end when stdin is closed")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if info, err := os.Stat(*data); err != nil || !info.IsDir() {
		return fmt.Errorf("--data: a folder that exists, got %q", *data)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if *withStdin {
		go func() { // ends with the process
			_, _ = io.Copy(io.Discard, stdin)
			cancel()
		}()
	}
	backend, ended, err := startFerretDB(ctx, *data, stderr)
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
	uri := url.URL{Scheme: "mongodb", Host: l.Addr().String(), Path: "/"}
	ready, err := json.Marshal(map[string]any{"ready": true, "uri": uri.String()})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(stdout, "%s\n", ready); err != nil {
		return err
	}
	p := &proxy{dial: func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", backend)
	}}
	return p.serve(ctx, l)
}

// startFerretDB gives the address of a FerretDB that ends with ctx.
func startFerretDB(ctx context.Context, data string, stderr io.Writer) (address string, ended <-chan error, err error) {
	f, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: "127.0.0.1:0"},
		Handler:   "sqlite",
		SQLiteURL: "file:" + filepath.ToSlash(data) + "/",
		Logger:    slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return "", nil, fmt.Errorf("FerretDB: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	u, err := url.Parse(f.MongoDBURI())
	if err != nil {
		return "", nil, fmt.Errorf("FerretDB: %w", err)
	}
	return u.Host, done, nil
}
