package service

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// What a service does every now and then it does at once, and each interval: one
// failure does not end it, and its context does.
func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logs
		var at []time.Duration
		begun := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			Every(ctx, slog.New(slog.NewTextHandler(&log, nil)), time.Minute, "the work", func(context.Context) error {
				at = append(at, time.Since(begun))
				if len(at) == 2 {
					return errors.New("boom")
				}
				return nil
			})
		})
		synctest.Wait()
		time.Sleep(3 * time.Minute) //nolint:forbidigo // synctest's clock
		synctest.Wait()
		if want := []time.Duration{0, time.Minute, 2 * time.Minute, 3 * time.Minute}; !slices.Equal(at, want) {
			t.Errorf("done at %v, want %v", at, want)
		}
		if text := log.String(); strings.Count(text, "the work") != 1 || !strings.Contains(text, "boom") {
			t.Errorf("the log says %q", text)
		}
		cancel()
		running.Wait()
		time.Sleep(time.Hour) //nolint:forbidigo // synctest's clock
		if len(at) != 4 {
			t.Errorf("it goes on after the end: %v", at)
		}
	})
}

// Work that is going on at the end is waited for, and what it says then is not news.
func TestEveryWaitsForItsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logs
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		ended := false
		running.Go(func() {
			Every(ctx, slog.New(slog.NewTextHandler(&log, nil)), time.Minute, "the work", func(ctx context.Context) error {
				<-ctx.Done()
				time.Sleep(time.Second) //nolint:forbidigo // synctest's clock
				ended = true
				return ctx.Err()
			})
		})
		synctest.Wait()
		cancel()
		running.Wait()
		if !ended || log.String() != "" {
			t.Errorf("ended: %v, the log says %q", ended, log.String())
		}
	})
}

// Long work is not done twice at a time.
func TestEveryDoesNotOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		at, times := 0, 0
		running.Go(func() {
			Every(ctx, slog.New(slog.DiscardHandler), time.Minute, "", func(context.Context) error {
				if at++; at != 1 {
					t.Errorf("%d at a time", at)
				}
				time.Sleep(150 * time.Second) //nolint:forbidigo // synctest's clock
				at--
				times++
				return nil
			})
		})
		time.Sleep(10 * time.Minute) //nolint:forbidigo // synctest's clock
		synctest.Wait()
		cancel()
		running.Wait()
		if times < 4 {
			t.Errorf("done %d times in ten minutes, each in two and a half", times)
		}
	})
}
