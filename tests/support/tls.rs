//! Certificates made by the `openssl` command for one test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An authority, and what it signed: a server's certificate for 127.0.0.1 and localhost, and a client's.
pub struct Authority {
    folder: tempfile::TempDir,
}

impl Authority {
    pub fn new() -> Self {
        let authority = Self { folder: tempfile::tempdir().expect("a folder for certificates") };
        let path = |name: &str| authority.path(name).display().to_string();
        openssl(&[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=authority of a test",
            "-keyout",
            &path("ca.key"),
            "-out",
            &path("ca.pem"),
        ]);
        authority.sign("server", "subjectAltName=IP:127.0.0.1,DNS:localhost");
        authority.sign("client", "extendedKeyUsage=clientAuth");
        authority
    }

    /// The path of `ca.pem`, `server.pem`, `server.key`, `client.pem` or `client.key`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The content of one of these.
    pub fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("the file is there")
    }

    fn sign(&self, name: &str, extension: &str) {
        let path = |end: &str| self.path(&format!("{name}.{end}")).display().to_string();
        let ca = |end: &str| self.path(&format!("ca.{end}")).display().to_string();
        fs::write(path("ext"), extension).expect("a file");
        openssl(&[
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-subj",
            &format!("/CN={name}"),
            "-keyout",
            &path("key"),
            "-out",
            &path("csr"),
        ]);
        openssl(&[
            "x509",
            "-req",
            "-in",
            &path("csr"),
            "-CA",
            &ca("pem"),
            "-CAkey",
            &ca("key"),
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            &path("ext"),
            "-out",
            &path("pem"),
        ]);
    }
}

fn openssl(arguments: &[&str]) {
    let done = Command::new("openssl").args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(done.expect("openssl is installed").success(), "openssl {arguments:?}");
}

/// The arguments of a server that speaks TLS on `port` with what `authority` signed, and asks clients for theirs.
pub fn server_arguments(authority: &Authority, port: u16) -> Vec<String> {
    let path = |name: &str| Path::display(&authority.path(name)).to_string();
    [
        ["--tls-port", &port.to_string()],
        ["--tls-cert-file", &path("server.pem")],
        ["--tls-key-file", &path("server.key")],
        ["--tls-ca-cert-file", &path("ca.pem")],
        ["--tls-auth-clients", "yes"],
    ]
    .concat()
    .into_iter()
    .map(str::to_owned)
    .collect()
}
