package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/posterndev/terraform-provider-postern/internal/testbed"
)

func (d *demo) plan(ctx context.Context) error {
	cli, err := testbed.FindTerraform()
	if err != nil {
		return err
	}
	_, provider, err := binaries()
	if err != nil {
		return err
	}
	folder := filepath.Join(d.dir, "tf")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	if err := os.WriteFile(filepath.Join(folder, "main.tf"), []byte(configuration), 0o600); err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	if d.terraform, err = testbed.NewTerraform(cli, provider, folder, filepath.Join(d.dir, "mirror")); err != nil {
		return err
	}
	backends, err := json.Marshal(map[string]string{
		"shop": d.backends["shop"].Address, "shop-admin": d.backends["shop-admin"].Address, "postgres": d.backends["postgres"].Address,
	})
	if err != nil {
		return err
	}
	d.terraform.Env = []string{
		"TF_VAR_endpoint=" + d.agent.Endpoint, "TF_VAR_headscale_url=" + d.headscale.URL,
		"TF_VAR_headscale_api_key=" + d.headscale.APIKey, "TF_VAR_backends=" + string(backends),
	}
	if err := d.terraform.Init(ctx); err != nil {
		return err
	}
	text, _, err := d.terraform.Plan(ctx)
	if err != nil {
		return err
	}
	d.say("$ %s plan", filepath.Base(cli))
	for line := range strings.SplitSeq(text, "\n") {
		if strings.Contains(line, "dns_name") || strings.Contains(line, "url ") || strings.Contains(line, "Plan:") ||
			strings.Contains(line, `"tag:`) || strings.Contains(line, "example.internal") {
			d.say("%s", line)
		}
	}
	return nil
}

func (d *demo) apply(ctx context.Context) error {
	text, err := d.terraform.Apply(ctx)
	if err != nil {
		return err
	}
	_, tail, _ := strings.Cut(text, "Apply complete!")
	d.say("Apply complete!%s", tail)
	policy, err := d.headscale.Policy(ctx)
	if err != nil {
		return err
	}
	d.say("The policy now, every byte of the admin's kept:\n%s", policy)
	return nil
}

// output reads an output of the configuration.
func (d *demo) output(ctx context.Context, name string) (string, error) {
	text, err := d.terraform.Run(ctx, "output", "-raw", name)
	return strings.TrimSpace(text), err
}

func (d *demo) reach(ctx context.Context) error {
	user, err := d.headscale.CreateUser(ctx, "dev")
	if err != nil {
		return err
	}
	key, err := d.headscale.AuthKey(ctx, user)
	if err != nil {
		return err
	}
	if d.peer, err = testbed.StartPeer(ctx, d.headscale, "laptop", key, filepath.Join(d.dir, "laptop")); err != nil {
		return err
	}
	d.cleanups = append(d.cleanups, d.peer.Close)
	d.say("A laptop of dev, who is in group:shop, is on the tailnet as %s", d.peer.Address())
	return d.check(ctx)
}

// check reaches every service as the peer.
func (d *demo) check(ctx context.Context) error {
	device, err := d.output(ctx, "device")
	if err != nil {
		return err
	}
	address, err := d.output(ctx, "address")
	if err != nil {
		return err
	}
	ca, err := d.output(ctx, "ca")
	if err != nil {
		return err
	}
	if err := d.echo(ctx, device+":5432"); err != nil {
		return err
	}
	client := d.peer.HTTPClient(address, ca)
	defer client.CloseIdleConnections()
	for _, url := range []string{
		"https://shop.shop-dev.prod-1.example.internal/", "https://shop.prod-1.example.internal/", "https://shop-admin.shop-dev.prod-1.example.internal/",
	} {
		if err := d.get(ctx, client, url); err != nil {
			return err
		}
	}
	return nil
}

// patience is how long a step outside of Terraform may take.
const patience = 60 * time.Second

func (d *demo) echo(ctx context.Context, target string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return testbed.Eventually(ctx, func() error {
		attempt, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		conn, err := d.peer.Dial(attempt, "tcp", target)
		if err != nil {
			return fmt.Errorf("dialling %s: %w", target, err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "select 1"); err != nil {
			return err
		}
		answer := make([]byte, len("select 1"))
		if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, answer); err != nil {
			return fmt.Errorf("reading from %s: %w", target, err)
		}
		d.say("  tcp    %-55s answers %q", target, answer)
		return nil
	})
}

func (d *demo) get(ctx context.Context, client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return testbed.Eventually(ctx, func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		var seen testbed.Seen
		if err := json.NewDecoder(answer.Body).Decode(&seen); err != nil {
			return fmt.Errorf("%s: %s: %w", url, answer.Status, err)
		}
		d.say("  %s %-55s answers %s from backend %q, certificate of %s", answer.Proto[:6], url, answer.Status, seen.Backend,
			answer.TLS.PeerCertificates[0].Issuer.CommonName)
		return nil
	})
}

func (d *demo) restart(ctx context.Context) error {
	before, found, err := d.headscale.Device(ctx, "ingress-shop")
	if err != nil || !found {
		return errors.Join(errors.New("the device ingress-shop is not at Headscale"), err)
	}
	if err := d.agent.Kill(); err != nil {
		return err
	}
	d.say("The agent is dead. Starting it again.")
	if err := d.agent.Start(ctx); err != nil {
		return err
	}
	if err := d.check(ctx); err != nil {
		return err
	}
	after, found, err := d.headscale.Device(ctx, "ingress-shop")
	if err != nil || !found {
		return errors.Join(errors.New("the device ingress-shop is not at Headscale"), err)
	}
	if before.ID != after.ID || strings.Join(before.Addresses, ",") != strings.Join(after.Addresses, ",") {
		return fmt.Errorf("the device was %s at %v and is %s at %v", before.ID, before.Addresses, after.ID, after.Addresses)
	}
	d.say("Same device %s, same addresses %s", after.ID, strings.Join(after.Addresses, ", "))
	return nil
}

func (d *demo) destroy(ctx context.Context) error {
	text, err := d.terraform.Destroy(ctx)
	if err != nil {
		return err
	}
	_, tail, _ := strings.Cut(text, "Destroy complete!")
	d.say("Destroy complete!%s", strings.TrimRight(tail, "\n"))
	devices, err := d.headscale.Devices(ctx)
	if err != nil {
		return err
	}
	for _, device := range devices {
		d.say("  a device that is left: %s", device.GivenName)
		if device.GivenName != "laptop" {
			return fmt.Errorf("device %s is still at Headscale", device.GivenName)
		}
	}
	policy, err := d.headscale.Policy(ctx)
	if err != nil {
		return err
	}
	if policy != adminPolicy {
		return fmt.Errorf("the policy is not the admin's again:\n%s", policy)
	}
	d.say("  the policy is the admin's again, byte for byte")
	return nil
}
