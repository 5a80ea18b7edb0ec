// Package archtest holds tests alone: the rules of the code's architecture, each with its reason.
package archtest
