package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/posterndev/terraform-provider-postern/internal/api"
	"github.com/posterndev/terraform-provider-postern/internal/desired"
)

func newStatus(c *client) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show a line for each ingress: what it serves, and what keeps it from being ready",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			agent, err := c.open()
			if err != nil {
				return err
			}
			defer agent.Close()
			var all []api.Document
			for _, info := range desired.Kinds() {
				documents, err := agent.List(cmd.Context(), info.Kind)
				if err != nil {
					return err
				}
				all = append(all, documents...)
			}
			switch output {
			case "json":
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(map[string]any{"documents": all})
			case "", "wide":
				return writeStatus(cmd.OutOrStdout(), all, output == "wide")
			}
			return fmt.Errorf("-o %q: the output is json or wide, or -o is left out", output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "json, or wide")
	return cmd
}

// writeStatus writes the ingresses, and before them the tailnets and issuers that are not ready.
func writeStatus(w io.Writer, all []api.Document, wide bool) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	header := "INGRESS\tTAILNET\tSERVED\tREADY\tWHY"
	if wide {
		header = "INGRESS\tTAILNET\tNAME\tADDRESS\tSERVED\tREADY\tWHY"
	}
	fmt.Fprintln(table, header)
	for i := range all {
		d := &all[i]
		ready := d.Ready()
		if d.Ingress == nil {
			if ready.Status != desired.True {
				fmt.Fprintf(table, "(%s)%s\t%s\t%s\n", d.Key, strings.Repeat("\t-", strings.Count(header, "\t")-2), truth(ready), why(d, ready))
			}
			continue
		}
		served := strings.Join(d.Status.ServedHosts, ",")
		if served == "" {
			served = "-"
		}
		if wide {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", d.Key.ID(), d.Ingress.Tailnet, dash(d.Status.MagicDNSName),
				dash(strings.Join(d.Status.Addresses, ",")), served, truth(ready), why(d, ready))
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", d.Key.ID(), d.Ingress.Tailnet, served, truth(ready), why(d, ready))
	}
	return table.Flush()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func truth(c desired.Condition) string {
	switch {
	case c.Status == desired.True:
		return "yes"
	case c.Reason == desired.ReasonDeleting:
		return "deleting"
	}
	return "no"
}

// why is the first condition that is false.
func why(d *api.Document, ready desired.Condition) string {
	if ready.Status == desired.True {
		return ""
	}
	for _, t := range []desired.ConditionType{desired.Registered, desired.PolicyReady, desired.TLSReady, desired.BackendsReachable} {
		if c := d.Status.Conditions.Get(t, d.Revision); d.Ingress != nil && c.Status == desired.False {
			return fmt.Sprintf("%s: %s: %s", t, c.Reason, c.Message)
		}
	}
	return fmt.Sprintf("%s: %s", ready.Reason, ready.Message)
}
