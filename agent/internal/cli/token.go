package cli

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/posterndev/terraform-provider-postern/internal/api"
)

func newToken(c *client) *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "Make, list and revoke bearer tokens for the API over TLS"}
	cmd.AddCommand(newTokenCreate(c), newTokenList(c), newTokenRevoke(c))
	return cmd
}

func newTokenCreate(c *client) *cobra.Command {
	var ttl time.Duration
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a token; it is shown once, on standard output",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			agent, err := c.open()
			if err != nil {
				return err
			}
			defer agent.Close()
			token, err := agent.CreateToken(cmd.Context(), api.TokenRequest{Name: args[0], TTL: int64(ttl / time.Second)})
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "token %s (%s) is good until %s\n", token.ID, token.Name, token.Expires.Format(time.RFC3339))
			fmt.Fprintln(cmd.OutOrStdout(), token.Secret)
			return nil
		},
	}
	cmd.Flags().DurationVar(&ttl, "ttl", 30*24*time.Hour, "how long the token is good for")
	return cmd
}

func newTokenList(c *client) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the tokens",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			agent, err := c.open()
			if err != nil {
				return err
			}
			defer agent.Close()
			tokens, err := agent.Tokens(cmd.Context())
			if err != nil {
				return err
			}
			table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
			fmt.Fprintln(table, "ID\tNAME\tEXPIRES")
			for _, t := range tokens {
				fmt.Fprintf(table, "%s\t%s\t%s\n", t.ID, t.Name, t.Expires.Format(time.RFC3339))
			}
			return table.Flush()
		},
	}
}

func newTokenRevoke(c *client) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID",
		Short: "End a token now",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			agent, err := c.open()
			if err != nil {
				return err
			}
			defer agent.Close()
			return agent.RevokeToken(cmd.Context(), args[0])
		},
	}
}
