//! A broker that lets in who it knows, and each only to what it may: a listener with TLS and passwords beside the plain
//! one, whose users are superusers.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::super::wait;
use super::{Kafka, Plan};

/// Users `walgate` and `reader` have the password `secret`, by any of the mechanisms.
const PROPERTIES: &[&str] = &[
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:ANONYMOUS",
    "listener.name.secure.sasl.enabled.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256,PLAIN,OAUTHBEARER",
    "listener.name.secure.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "listener.name.secure.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "listener.name.secure.plain.sasl.jaas.config=\
     org.apache.kafka.common.security.plain.PlainLoginModule required user_walgate=\"secret\" user_reader=\"secret\";",
    // Takes the word of whoever issues a token, as long as it is not past its time.
    "listener.name.secure.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
    "listener.name.secure.ssl.keystore.type=PEM",
    "listener.name.secure.ssl.truststore.type=PEM",
];

/// An authority, a certificate that it gave the broker and one that it gave the client, and another authority.
const CERTIFICATES: &str = "
request='openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -batch'
for authority in ca stranger; do $request -x509 -days 30 -subj /CN=$authority -keyout $authority.key -out $authority.pem; done
for name in server client; do
  $request -subj /CN=$name -keyout $name.key -out $name.csr
  printf 'subjectAltName=DNS:localhost,IP:127.0.0.1' >names
  openssl x509 -req -days 30 -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names -out $name.pem
done
cat server.key server.pem >broker.pem
";

/// For the broker to apply what its controller decided.
const PATIENCE: Duration = Duration::from_secs(30);

impl Plan {
    /// With a listener that asks for TLS and a password, and rights that have to be given. Let it ask for the client's
    /// certificate too by `with("listener.name.secure.ssl.client.auth=required")`.
    pub(crate) fn secured(mut self) -> Self {
        self.is_secured = true;
        self
    }
}

impl Kafka {
    /// See [`Plan::secured`].
    pub(crate) fn with_security() -> Plan {
        Self::plan().secured()
    }

    /// For `bootstrap.servers` with `security.protocol = SASL_SSL`.
    #[track_caller]
    pub(crate) fn secure_brokers(&self) -> String {
        format!("localhost:{}", self.secure_port.expect("the broker was made with security"))
    }

    /// `ca.pem`, `client.pem`, `client.key`, or `stranger.pem`, which nobody here knows.
    pub(crate) fn certificate(&self, name: &str) -> PathBuf {
        self.path(name)
    }

    /// Gives a right: `allow("walgate", "Write", &["--topic", "shop.", "--resource-pattern-type", "prefixed"])`.
    #[track_caller]
    pub(crate) fn allow(&self, user: &str, operation: &str, resource: &[&str]) {
        self.change_right("--add", user, operation, resource);
    }

    /// Takes away what [`Kafka::allow`] gave.
    #[track_caller]
    pub(crate) fn forbid(&self, user: &str, operation: &str, resource: &[&str]) {
        self.change_right("--remove", user, operation, resource);
    }

    #[track_caller]
    fn change_right(&self, verb: &str, user: &str, operation: &str, resource: &[&str]) {
        let principal = format!("User:{user}");
        let force: &[&str] = if verb == "--remove" { &["--force"] } else { &[] };
        self.tool("AclCommand", &[&[verb, "--allow-principal", &principal, "--operation", operation], force, resource].concat());
        wait::until(PATIENCE, &format!("{verb} {operation} of {user} on {resource:?} is in force"), || {
            let listed = self.tool("AclCommand", &[&["--list", "--principal", &principal], resource].concat());
            let has = listed.contains(&format!("principal={principal}, host=*, operation={}", shown(operation)));
            has == (verb == "--add")
        });
    }
}

/// As a list of rights has it: `DESCRIBE_CONFIGS` for `DescribeConfigs`.
fn shown(operation: &str) -> String {
    let words = operation
        .chars()
        .enumerate()
        .map(|(n, letter)| if n > 0 && letter.is_uppercase() { format!("_{letter}") } else { letter.to_string() });
    words.collect::<String>().to_uppercase()
}

/// The properties of a secured broker, whose certificates are made in its folder.
pub(super) fn properties(folder: &Path) -> Vec<String> {
    let mut sh = Command::new("sh");
    let made = sh.args(["-ec", CERTIFICATES]).current_dir(folder).stdin(Stdio::null()).output().expect("sh runs");
    assert!(made.status.success(), "certificates cannot be made: {}", String::from_utf8_lossy(&made.stderr));
    let store = |kind, name| format!("listener.name.secure.ssl.{kind}.location={}", folder.join(name).display());
    let stores = [store("keystore", "broker.pem"), store("truststore", "ca.pem")];
    PROPERTIES.iter().map(|property| (*property).to_owned()).chain(stores).collect()
}
