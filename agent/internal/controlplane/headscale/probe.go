package headscale

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/posterndev/terraform-provider-postern/agent/internal/controlplane"
	"github.com/posterndev/terraform-provider-postern/agent/internal/policy"
)

// maxSkew is how far two clocks may be apart: keys are minted for minutes, and their end is told in absolute time.
const maxSkew = 30 * time.Second

// lacks is what no Headscale 0.29 offers, with the way out.
func lacks() map[controlplane.Feature]string {
	return map[controlplane.Feature]string{
		controlplane.FeatureOAuthClients: "Headscale 0.29 has no OAuth clients; it knows API keys that may do everything (`headscale apikeys create`).",
		controlplane.FeatureCertificates: "Headscale issues no certificates (/machine/set-dns is not implemented); use an issuer of type acme or ca, or a certificate of your own.",
		controlplane.FeatureSettings:     "Headscale takes its settings from its configuration file only.",
		controlplane.FeatureServices:     "Headscale has no Tailscale Services; use identity own or shared.",
		controlplane.FeatureDNS:          "Headscale's DNS is set in its configuration file: dns.nameservers.split for a zone, dns.extra_records_path for records.",
		controlplane.FeaturePolicyGuard:  "Headscale 0.29 can't refuse a policy write because the document has changed; Postern compares before and reads back after, which is not atomic.",
		controlplane.FeatureBaseDomain:   "Headscale's API does not tell dns.base_domain; it is known once a node has joined.",
	}
}

// Probe implements controlplane.Prober.
func (c *Client) Probe(ctx context.Context) (controlplane.Facts, error) {
	f := controlplane.Facts{Kind: "headscale", Lacks: lacks()}
	if c.base.Scheme == "http" && !isLoopback(c.base.Hostname()) {
		c.report(&f, controlplane.ProblemPlainHTTP, "The API key is sent in the clear",
			"The URL %s has no TLS, and who reads the traffic can take over the tailnet. Put Headscale behind https and set that URL.", c.base)
	}
	begin := time.Now()
	var version struct{ Version string }
	header, err := c.call(ctx, http.MethodGet, "/version", nil, &version)
	if err != nil && !errors.Is(err, controlplane.ErrNotFound) {
		return f, c.explain(&f, err)
	}
	if err != nil || version.Version == "" {
		err = errors.Join(controlplane.ErrWrongServer, err)
		return f, c.explain(&f, fmt.Errorf("GET /version: %w", err))
	}
	f.Version = version.Version
	c.judgeVersion(&f)
	c.judgeClock(&f, header, begin)
	if err := c.probePolicy(ctx, &f); err != nil {
		return f, c.explain(&f, err)
	}
	if f.Users, err = c.users(ctx); err != nil {
		return f, c.explain(&f, err)
	}
	return f, nil
}

func (c *Client) report(f *controlplane.Facts, id, summary, detail string, args ...any) {
	f.Problems = append(f.Problems, controlplane.Problem{ID: id, Summary: summary, Detail: fmt.Sprintf(detail, args...)})
}

// explain adds the problem that err is, and returns err.
func (c *Client) explain(f *controlplane.Facts, err error) error {
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &certificate):
		c.report(f, controlplane.ProblemUnreachable, "The certificate of Headscale is not trusted",
			"%v. Give the certificate of its authority as the CA bundle, or have Headscale serve one that this machine trusts.", err)
	case errors.Is(err, controlplane.ErrUnavailable):
		c.report(f, controlplane.ProblemUnreachable, "Headscale is not reachable",
			"%v. See that it runs, that %s is where it listens, and that this machine may connect to it.", err, c.base)
	case errors.Is(err, controlplane.ErrUnauthorized):
		c.report(f, controlplane.ProblemCredentials, "Headscale refuses the API key",
			"%v. Keys expire (90 days if nothing else was said). Make one with `headscale apikeys create` and set it as the API key of this tailnet.", err)
	case errors.Is(err, controlplane.ErrWrongServer):
		c.report(f, controlplane.ProblemWrongServer, "What answers is not Headscale",
			"%v. Set the URL that Headscale has as its server_url, and let a proxy before it pass /api/v1 and /version.", err)
	default:
		c.report(f, controlplane.ProblemRequest, "Headscale answers with an error", "%v. Its log says more.", err)
	}
	return err
}

var versionForm = regexp.MustCompile(`^v?(\d+)\.(\d+)\.`)

// judgeVersion knows 0.29. Before it there was no policy check; 0.30 is being rewritten.
func (c *Client) judgeVersion(f *controlplane.Facts) {
	m := versionForm.FindStringSubmatch(f.Version)
	if m == nil {
		c.report(f, controlplane.ProblemVersion, "The version of Headscale is unknown",
			"%s reports version %q. Postern is tested with 0.29; use a release.", c.base, f.Version)
		return
	}
	major, _ := strconv.Atoi(m[1])
	minor, _ := strconv.Atoi(m[2])
	switch {
	case major == 0 && minor < 29:
		c.report(f, controlplane.ProblemVersion, "Headscale is too old",
			"%s runs %s; Postern needs 0.29 (grants, tags as owners, POST /api/v1/policy/check). Upgrade Headscale.", c.base, f.Version)
	case major > 0 || minor > 29:
		c.report(f, controlplane.ProblemVersion, "Headscale is newer than what Postern knows",
			"%s runs %s; Postern is tested with 0.29, and later versions may answer otherwise. Upgrade Postern, or run Headscale 0.29.", c.base, f.Version)
	}
}

func (c *Client) judgeClock(f *controlplane.Facts, header http.Header, begin time.Time) {
	there, err := http.ParseTime(header.Get("Date"))
	if err != nil {
		return
	}
	end := time.Now()
	// The header is cut to the second and was written between begin and end.
	switch {
	case there.Add(time.Second).Before(begin):
		f.Skew = there.Add(time.Second).Sub(begin).Truncate(time.Second)
	case there.After(end):
		f.Skew = there.Sub(end).Truncate(time.Second)
	}
	if f.Skew.Abs() > maxSkew {
		c.report(f, controlplane.ProblemClock, "The clocks of Headscale and this machine differ",
			"The clock of %s is %s ahead of this machine's (behind if negative). Keys may be expired when they are made. Set both by NTP.", c.base, f.Skew)
	}
}

func (c *Client) probePolicy(ctx context.Context, f *controlplane.Facts) error {
	p, err := c.getPolicy(ctx)
	switch {
	case errors.Is(err, controlplane.ErrNoPolicy):
		f.PolicyMode, f.PolicyWritable = controlplane.PolicyDatabase, true
		f.Names = policy.Names{AllowsAll: true}
		return nil
	case errors.Is(err, errPolicyFile), err == nil && p.UpdatedAt == "":
		f.PolicyMode = controlplane.PolicyFile
		c.report(f, controlplane.ProblemPolicyFile, "Headscale keeps its policy in a file",
			"%s runs with `policy.mode: file`, in which its API can't write the policy. Set `policy.mode: database` in Headscale's "+
				"configuration, restart it, and load the file once with `headscale policy set --file <file>`.", c.base)
		if err != nil {
			return nil //nolint:nilerr // there is nothing to read in it, which the problem says
		}
	case err != nil:
		return err
	default:
		f.PolicyMode, f.PolicyWritable = controlplane.PolicyDatabase, true
	}
	if p.empty() {
		f.Names = policy.Names{AllowsAll: true}
		return nil
	}
	if f.Names, err = policy.Describe([]byte(p.Policy)); err != nil {
		c.report(f, controlplane.ProblemPolicyUnparsed, "The policy can't be read",
			"%v. Postern changes nothing in it as long as that is so; mend the document.", err)
	}
	return nil
}

// users returns the users as rules write them: by email if there is one, and by name with "@" after it.
func (c *Client) users(ctx context.Context) ([]string, error) {
	var answer struct {
		Users []struct{ Name, Email string }
	}
	if _, err := c.call(ctx, http.MethodGet, "/api/v1/user", nil, &answer); err != nil {
		return nil, err
	}
	var names []string
	for _, u := range answer.Users {
		if u.Name != "" {
			names = append(names, u.Name+"@")
		}
		if u.Email != "" {
			names = append(names, u.Email)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}
