// Package ui drives the page for people in headless Chromium, against a whole stack.
package ui
