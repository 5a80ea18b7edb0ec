package desired

import "strings"

// Unknown stands for text that is not known yet in a plan. It is in no valid name and the API refuses it, so it is never
// stored. Text made from it contains it.
const Unknown = "\x00"

// Known reports whether s was made from known text alone.
func Known(s string) bool { return !strings.Contains(s, Unknown) }
