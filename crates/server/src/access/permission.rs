//! What may be done, and the roles that hold it.

use std::fmt;

use coded::named;

named! {
    /// One thing that may be done, named `noun.verb`.
    pub enum Permission: "permission" {
        /// See certificates, managed and issued, and their history.
        CertificateRead => "certificate.read",
        /// Ask for a certificate: a new managed one, or one from a CSR.
        CertificateRequest => "certificate.request",
        /// Change a managed certificate, archive it, claim one that a scan found.
        CertificateManage => "certificate.manage",
        /// Renew before its time.
        CertificateRenew => "certificate.renew",
        /// Revoke, one or by filter.
        CertificateRevoke => "certificate.revoke",
        /// Take out the private key of a certificate whose key is kept by the server.
        CertificateExport => "certificate.export",
        /// See profiles.
        ProfileRead => "profile.read",
        /// Make, change, remove profiles.
        ProfileManage => "profile.manage",
        /// See authorities and their certificates.
        CaRead => "ca.read",
        /// Create, import, cross-sign, retire authorities.
        CaManage => "ca.manage",
        /// See the issuers outside.
        IssuerRead => "issuer.read",
        /// Configure and test the issuers outside.
        IssuerManage => "issuer.manage",
        /// See policies and their violations.
        PolicyRead => "policy.read",
        /// Make, change, remove policies.
        PolicyManage => "policy.manage",
        /// See owners and teams.
        PeopleRead => "people.read",
        /// Make, change, remove owners and teams.
        PeopleManage => "people.manage",
        /// See what waits for approval.
        ApprovalRead => "approval.read",
        /// Approve or refuse as the second person.
        ApprovalDecide => "approval.decide",
        /// See runs of issuance, renewal and deployment.
        JobRead => "job.read",
        /// Cancel and repeat runs.
        JobManage => "job.manage",
        /// See agents.
        AgentRead => "agent.read",
        /// Rename, retire agents.
        AgentManage => "agent.manage",
        /// Make enrolment tokens for agents.
        AgentEnroll => "agent.enroll",
        /// Work as an agent: take jobs, send CSRs, report.
        AgentWork => "agent.work",
        /// See the key service's sites and nodes.
        NodeRead => "node.read",
        /// Make, change, remove sites; retire nodes.
        NodeManage => "node.manage",
        /// Make tokens by which nodes join.
        NodeEnroll => "node.enroll",
        /// Work as a node: say that it is there, learn of the others.
        NodeWork => "node.work",
        /// See the policies of keys, and which keys are sealed to them.
        KeyPolicyRead => "key_policy.read",
        /// Make, rotate, remove policies of keys.
        KeyPolicyManage => "key_policy.manage",
        /// Store keys that are sealed to a policy, and withdraw them.
        KeySeal => "key.seal",
        /// See deployment targets.
        TargetRead => "target.read",
        /// Make, change, remove deployment targets.
        TargetManage => "target.manage",
        /// See alerts, channels and deliveries.
        AlertRead => "alert.read",
        /// Configure, silence, acknowledge, requeue alerts.
        AlertManage => "alert.manage",
        /// See what ACME, EST and SCEP clients may do.
        ProtocolRead => "protocol.read",
        /// Make EAB keys, passwords and overrides for ACME, EST and SCEP clients.
        ProtocolManage => "protocol.manage",
        /// See the results of scans.
        InventoryRead => "inventory.read",
        /// Start scans, and change their results.
        InventoryManage => "inventory.manage",
        /// Block a compromised key, revoking all that share it.
        KeyBlock => "key.block",
        /// Rotate the master key.
        KeyRotate => "key.rotate",
        /// Do anything with every credential, whatever the permissions of paths say.
        CredentialManage => "credential.manage",
        /// Follow events.
        EventRead => "event.read",
        /// Read the metrics.
        MetricsRead => "metrics.read",
        /// Read and export the audit trail.
        AuditRead => "audit.read",
        /// Verify the audit trail's chains.
        AuditVerify => "audit.verify",
        /// See tokens, users, sessions and roles.
        AccessRead => "access.read",
        /// Make and remove tokens, users and roles, within one's own permissions.
        AccessManage => "access.manage",
    }
}

impl Permission {
    /// Whether a session must have proved lately who its person is to change something by this permission: what takes
    /// certificates out of service, gives keys away, or changes CAs and access.
    #[must_use]
    pub const fn is_dangerous(self) -> bool {
        matches!(
            self,
            Self::CertificateRevoke
                | Self::CertificateExport
                | Self::CaManage
                | Self::KeyBlock
                | Self::KeyRotate
                | Self::AccessManage
        )
    }
}

// A set is one machine word.
const _: () = assert!(Permission::ALL.len() <= 64);

/// A set of permissions.
#[derive(Clone, Copy, Default, Eq, PartialEq)]
pub struct Permissions(u64);

impl Permissions {
    /// None.
    pub const NONE: Self = Self(0);

    /// The set of these permissions.
    #[must_use]
    pub const fn of(permissions: &[Permission]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < permissions.len() {
            bits |= 1 << permissions[at] as u8;
            at += 1;
        }
        Self(bits)
    }

    /// Every one.
    #[must_use]
    pub const fn all() -> Self {
        Self::of(&Permission::ALL)
    }

    /// Whether it is among them.
    #[must_use]
    pub const fn has(self, permission: Permission) -> bool {
        self.0 & (1 << permission as u8) != 0
    }

    /// Whether every one of `other` is among them.
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// The permissions of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The set without the permissions of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// One after the other.
    pub fn iter(self) -> impl Iterator<Item = Permission> {
        Permission::ALL.iter().copied().filter(move |permission| self.has(*permission))
    }
}

impl fmt::Debug for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Permission::name)).finish()
    }
}

/// A role that comes with Bulla and cannot be changed.
#[derive(Clone, Copy, Debug)]
pub struct BuiltInRole {
    /// Its name.
    pub name: &'static str,
    /// A description.
    pub description: &'static str,
    /// The permissions of the role.
    pub permissions: Permissions,
}

/// What can be seen without seeing who has access or what was done by whom, and without working as an agent or a node.
const SEEING: Permissions = Permissions::of(&[
    Permission::CertificateRead,
    Permission::ProfileRead,
    Permission::CaRead,
    Permission::IssuerRead,
    Permission::PolicyRead,
    Permission::PeopleRead,
    Permission::ApprovalRead,
    Permission::JobRead,
    Permission::AgentRead,
    Permission::NodeRead,
    Permission::KeyPolicyRead,
    Permission::TargetRead,
    Permission::AlertRead,
    Permission::ProtocolRead,
    Permission::InventoryRead,
    Permission::EventRead,
    Permission::MetricsRead,
]);

/// The roles that come with Bulla.
pub const BUILT_IN_ROLES: &[BuiltInRole] = &[
    BuiltInRole { name: "admin", description: "everything", permissions: Permissions::all() },
    BuiltInRole {
        name: "operator",
        description: "runs certificates, issuers, targets and alerts; neither access nor the second person's part",
        permissions: SEEING.union(Permissions::of(&[
            Permission::CertificateRequest,
            Permission::CertificateManage,
            Permission::CertificateRenew,
            Permission::CertificateRevoke,
            Permission::CertificateExport,
            Permission::ProfileManage,
            Permission::IssuerManage,
            Permission::PolicyManage,
            Permission::PeopleManage,
            Permission::JobManage,
            Permission::AgentManage,
            Permission::AgentEnroll,
            Permission::TargetManage,
            Permission::AlertManage,
            Permission::ProtocolManage,
            Permission::InventoryManage,
            Permission::KeyBlock,
            Permission::KeySeal,
        ])),
    },
    BuiltInRole {
        name: "issuer",
        description: "asks for certificates and renews them",
        permissions: Permissions::of(&[
            Permission::CertificateRead,
            Permission::CertificateRequest,
            Permission::CertificateRenew,
            Permission::ProfileRead,
            Permission::IssuerRead,
            Permission::CaRead,
            Permission::JobRead,
        ]),
    },
    BuiltInRole {
        name: "approver",
        description: "the second person: approves and refuses",
        permissions: Permissions::of(&[
            Permission::ApprovalRead,
            Permission::ApprovalDecide,
            Permission::CertificateRead,
            Permission::ProfileRead,
            Permission::JobRead,
        ]),
    },
    BuiltInRole { name: "viewer", description: "sees, changes nothing", permissions: SEEING },
    BuiltInRole {
        name: "auditor",
        description: "sees everything, the audit trail and access too; changes nothing",
        permissions: SEEING.union(Permissions::of(&[
            Permission::AuditRead,
            Permission::AuditVerify,
            Permission::AccessRead,
        ])),
    },
    BuiltInRole {
        name: "agent",
        description: "works as an agent and sees nothing else",
        permissions: Permissions::of(&[Permission::AgentWork]),
    },
    BuiltInRole {
        name: "node",
        description: "works as a node of the key service and sees nothing else",
        permissions: Permissions::of(&[Permission::NodeWork]),
    },
];

/// The built-in role of this name.
#[must_use]
pub fn built_in_role(name: &str) -> Option<&'static BuiltInRole> {
    BUILT_IN_ROLES.iter().find(|role| role.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_are_named_by_noun_and_verb() {
        for permission in Permission::ALL {
            let (noun, verb) = permission.name().split_once('.').unwrap();
            assert!(!noun.is_empty() && !verb.is_empty());
        }
    }

    #[test]
    fn roles_hold_what_they_say() {
        let of = |name: &str| built_in_role(name).unwrap().permissions;
        assert_eq!(of("admin"), Permissions::all());
        for name in ["operator", "issuer", "approver", "viewer", "auditor", "agent", "node"] {
            assert!(!of(name).has(Permission::AccessManage), "{name}");
            assert!(!of(name).has(Permission::KeyRotate), "{name}");
            // Who makes nodes decides who opens keys.
            assert!(!of(name).has(Permission::NodeEnroll) && !of(name).has(Permission::NodeManage), "{name}");
            assert!(!of(name).has(Permission::KeyPolicyManage), "{name}");
        }
        // The second person is never the first.
        assert!(!of("operator").has(Permission::ApprovalDecide));
        assert!(!of("approver").has(Permission::CertificateRequest));
        for name in ["viewer", "auditor"] {
            for permission in of(name).iter() {
                assert!(
                    permission.name().ends_with(".read") || permission == Permission::AuditVerify,
                    "{name}: {permission}"
                );
            }
        }
    }

    #[test]
    fn sets_are_sets() {
        let pair = Permissions::of(&[Permission::CaRead, Permission::KeyBlock]);
        assert!(pair.has(Permission::CaRead) && !pair.has(Permission::CaManage));
        assert!(Permissions::all().covers(pair) && !pair.covers(Permissions::all()));
        assert_eq!(pair.iter().count(), 2);
        assert_eq!(format!("{pair:?}"), r#"{"ca.read", "key.block"}"#);
        assert_eq!(pair.without(pair), Permissions::NONE);
    }
}
