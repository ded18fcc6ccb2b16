//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// read reads a file, or the names in a folder.
func read(args []string) (string, error) {
	info, err := os.Stat(args[0])
	if err != nil {
		return "", err
	}
	if info.IsDir() {
		entries, err := os.ReadDir(args[0])
		return fmt.Sprint(entries), err
	}
	b, err := os.ReadFile(args[0])
	return string(b), err
}

// write makes a file.
func write(args []string) (string, error) {
	return args[0], os.WriteFile(args[0], []byte("intruder"), 0o600)
}

// open opens the null device often.
func open(args []string) (string, error) {
	for range number(args[0]) {
		f, err := os.Open(os.DevNull)
		if err != nil {
			return "", err
		}
		defer f.Close()
	}
	return args[0], nil
}

// fill writes to a folder until that is refused, at most the given number of
// bytes and the given number of files.
func fill(args []string) (string, error) {
	big, err := os.Create(filepath.Join(args[0], "big"))
	if err != nil {
		return "", err
	}
	defer big.Close()
	chunk := make([]byte, 64<<10)
	for range number(args[1]) / len(chunk) {
		if _, err := big.Write(chunk); err != nil {
			return "", fmt.Errorf("bytes: %w", err)
		}
	}
	for i := range number(args[2]) {
		f, err := os.Create(filepath.Join(args[0], fmt.Sprint(i)))
		if err != nil {
			return "", fmt.Errorf("inodes: %w", err)
		}
		_ = f.Close()
	}
	return args[0], nil
}
