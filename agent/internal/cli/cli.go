// Package cli is the program's verbs. Results go to standard output, all else to standard error; a verb that could not do
// what it was asked exits with 1.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/posterndev/terraform-provider-postern/agent/internal/agent"
	"github.com/posterndev/terraform-provider-postern/internal/api"
)

// Main runs the program and gives its exit code.
func Main(version string, args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot(version)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.ExecuteContext(ctx); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintf(stderr, "postern: %v\n", err)
		return 1
	}
	return 0
}

// client is how a verb reaches an agent.
type client struct{ endpoint, caFile string }

func (c *client) flags(cmd *cobra.Command) {
	cmd.PersistentFlags().StringVar(&c.endpoint, "endpoint", "", "the agent: unix:///path or https://host:port (POSTERN_ENDPOINT)")
	cmd.PersistentFlags().StringVar(&c.caFile, "ca-file", "", "what an https agent's certificate is verified with (POSTERN_CA_FILE)")
}

// open makes a client from flags, environment and defaults, in this order. A token comes from the environment alone, so
// that no list of processes shows it.
func (c *client) open() (*api.Client, error) {
	first := func(values ...string) string {
		for _, v := range values {
			if v != "" {
				return v
			}
		}
		return ""
	}
	options := api.Options{
		Endpoint: first(c.endpoint, os.Getenv("POSTERN_ENDPOINT"), "unix://"+agent.DefaultSocket("")),
		Token:    os.Getenv("POSTERN_TOKEN"), UserAgent: "postern",
	}
	if file := first(c.caFile, os.Getenv("POSTERN_CA_FILE")); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading the agent's CA certificate: %w", err)
		}
		options.CAPEM = string(text)
	}
	return api.NewClient(options)
}

func newRoot(version string) *cobra.Command {
	root := &cobra.Command{
		Use:   "postern",
		Short: "Publish services on a tailnet",
		Long: "Postern publishes services on a private network (Tailscale or Headscale) as Terraform declares them.\n" +
			"`postern run` is the agent; the other verbs talk to one.",
		SilenceUsage: true, SilenceErrors: true, Version: version,
	}
	c := &client{}
	c.flags(root)
	root.AddCommand(newRun(version), newStatus(c), newToken(c), newVersion(c, version))
	return root
}

func newRun(version string) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the agent",
		Long: "Run the agent until it is interrupted. Without a configuration file it keeps its state in the user's state\n" +
			"folder and listens on a Unix socket alone, which is enough for a trial.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := agent.LoadConfig(file)
			if err != nil {
				return err
			}
			return agent.Run(cmd.Context(), config, version, config.Logger())
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", os.Getenv("POSTERN_CONFIG"), "configuration file in YAML (POSTERN_CONFIG)")
	return cmd
}

func newVersion(c *client, version string) *cobra.Command {
	var remote bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version of this program, and with --agent that of the agent",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintf(cmd.OutOrStdout(), "postern %s (API %s)\n", version, api.Version)
			if !remote {
				return nil
			}
			agent, err := c.open()
			if err != nil {
				return err
			}
			defer agent.Close()
			info, err := agent.Info(cmd.Context())
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "agent %s (API %s)\n", info.Agent, info.API)
			return nil
		},
	}
	cmd.Flags().BoolVar(&remote, "agent", false, "ask the agent too")
	return cmd
}
