//! An authority of the lab's own, and the certificates that it signs, made by the `openssl` program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::process;

/// The name that the server's certificate is for.
pub(crate) const SERVER_NAME: &str = "db.lab";

/// A folder with an authority, `ca.crt`, and what it signed.
pub(crate) struct Authority(TempDir);

impl Authority {
    pub(crate) fn create() -> Self {
        let folder = tempfile::Builder::new().prefix("walgate-ca-").tempdir().expect("the temporary folder is writable");
        process::hand_over(folder.path());
        fs::write(folder.path().join("config"), "[req]\ndistinguished_name = name\n[name]\n").expect("a new folder is writable");
        let authority = Self(folder);
        let name = ["-subj", "/CN=lab authority", "-addext", "basicConstraints=critical,CA:TRUE"];
        authority.openssl(&[&["req", "-x509", "-keyout", "ca.key", "-out", "ca.crt"], NEW_KEY, &name].concat());
        authority
    }

    /// Signs `<file>.crt` for a common name, valid for so many days, and makes its key, `<file>.key`.
    pub(crate) fn sign(&self, file: &str, name: &str, days: &str) {
        let [key, request, certificate] = [".key", ".csr", ".crt"].map(|end| format!("{file}{end}"));
        let (subject, alternative) = (format!("/CN={name}"), format!("subjectAltName=DNS:{name}"));
        let own = ["-keyout", &key, "-out", &request, "-subj", &subject, "-addext", &alternative];
        self.openssl(&[&["req", "-new"], NEW_KEY, &own].concat());
        let by = ["-CA", "ca.crt", "-CAkey", "ca.key", "-days", days, "-copy_extensions", "copyall"];
        self.openssl(&[&["x509", "-req", "-in", &request, "-out", &certificate], by.as_slice()].concat());
    }

    /// Encrypts `<from>.key` as `<to>.key`.
    pub(crate) fn encrypt_key(&self, from: &str, to: &str) {
        let [from, to] = [from, to].map(|file| format!("{file}.key"));
        self.openssl(&["pkey", "-in", &from, "-out", &to, "-aes256", "-passout", "pass:secret"]);
    }

    /// Lines of `postgresql.conf` of a server with the certificate `<file>.crt`.
    pub(crate) fn settings(&self, file: &str) -> String {
        process::hand_over(&self.path(&format!("{file}.key")));
        let setting = |name: &str, file: &str| format!("{name} = '{}'\n", self.path(file).display());
        let (certificate, key) = (format!("{file}.crt"), format!("{file}.key"));
        let files = [("ssl_cert_file", certificate.as_str()), ("ssl_key_file", &key), ("ssl_ca_file", "ca.crt")];
        files.into_iter().fold("ssl = on\n".to_owned(), |settings, (name, file)| settings + &setting(name, file))
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(file)
    }

    /// A path as a value of the configuration.
    pub(crate) fn shown(&self, file: &str) -> String {
        self.path(file).into_os_string().into_string().expect("the temporary folder's name is UTF-8")
    }

    #[track_caller]
    fn openssl(&self, arguments: &[&str]) {
        let folder: &Path = self.0.path();
        let output = Command::new("openssl").args(arguments).current_dir(folder).output();
        let output = output.expect("openssl is installed: see scripts/setup");
        assert!(output.status.success(), "openssl {arguments:?} fails: {}", String::from_utf8_lossy(&output.stderr));
    }
}

const NEW_KEY: &[&str] = &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-config", "config"];
