package desired

// Issuer is where certificates come from (C5).
type Issuer struct {
	Name      string    `json:"name" tfsdk:"name"`
	Namespace *string   `json:"namespace,omitzero" tfsdk:"namespace"`
	CA        *CAIssuer `json:"ca,omitzero" tfsdk:"ca"`
}

// CAIssuer is a certificate authority whose key lies on the agent's host.
type CAIssuer struct {
	// Create has the agent make the key and certificate on first use. It never overwrites what is there (C6).
	Create          *bool   `json:"create,omitzero" tfsdk:"create"`
	CertificateFile *string `json:"certificate_file,omitzero" tfsdk:"certificate_file"`
	KeyFile         *string `json:"key_file,omitzero" tfsdk:"key_file"`
}

var _ Object = (*Issuer)(nil)

// Key implements Object.
func (i *Issuer) Key() Key {
	return Key{Kind: KindIssuer, Namespace: Value(i.Namespace, NoNamespace), Name: i.Name}
}

// Secrets implements Object.
func (i *Issuer) Secrets() map[string]*Secret { return nil }

// References implements Object.
func (i *Issuer) References() []Reference { return nil }

// Warnings implements Object.
func (i *Issuer) Warnings() []Warning { return nil }

// Validate implements Object.
func (i *Issuer) Validate() error {
	var f faults
	f.label(At("name"), i.Name)
	if i.Namespace != nil {
		f.label(At("namespace"), *i.Namespace)
	}
	at := At("ca")
	if i.CA == nil {
		f.add(at, "", "an issuer says how it issues; this version issues from a CA", "add ca = { create = true }")
		return f.err()
	}
	c := i.CA
	switch {
	case (c.CertificateFile == nil) != (c.KeyFile == nil):
		f.add(at, "", "certificate_file and key_file come together", "add the other one")
	case c.CertificateFile == nil && !Value(c.Create, false):
		f.add(at, "", "a CA has certificate_file and key_file, or create = true", "add ca = { create = true }, or name both files")
	case c.CertificateFile != nil && *c.CertificateFile == *c.KeyFile && Known(*c.KeyFile):
		f.add(at.Attribute("key_file"), *c.KeyFile, "certificate and key are two files", "name another file")
	}
	if c.CertificateFile != nil {
		f.absoluteFile(at.Attribute("certificate_file"), *c.CertificateFile)
	}
	if c.KeyFile != nil {
		f.absoluteFile(at.Attribute("key_file"), *c.KeyFile)
	}
	return f.err()
}
