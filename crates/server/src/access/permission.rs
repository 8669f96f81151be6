//! Permissions, and the roles that contain them.

use std::fmt;

use coded::named;

named! {
    /// A permission, named `noun.verb`.
    pub enum Permission: "permission" {
        /// Read certificates, managed and issued, and their history.
        CertificateRead => "certificate.read",
        /// Request a certificate: a new managed one, or one from a CSR.
        CertificateRequest => "certificate.request",
        /// Change or archive a managed certificate, or claim one that a scan found.
        CertificateManage => "certificate.manage",
        /// Renew certificates before they are due.
        CertificateRenew => "certificate.renew",
        /// Revoke certificates, one or by filter.
        CertificateRevoke => "certificate.revoke",
        /// Export the private key of a certificate whose key the server stores.
        CertificateExport => "certificate.export",
        /// Read profiles.
        ProfileRead => "profile.read",
        /// Create, change and delete profiles.
        ProfileManage => "profile.manage",
        /// Read certification authorities and their certificates.
        CaRead => "ca.read",
        /// Create, import, cross-sign and retire certification authorities.
        CaManage => "ca.manage",
        /// Read external issuers.
        IssuerRead => "issuer.read",
        /// Configure and test external issuers.
        IssuerManage => "issuer.manage",
        /// Read policies and their violations.
        PolicyRead => "policy.read",
        /// Create, change and delete policies.
        PolicyManage => "policy.manage",
        /// Read owners and teams.
        PeopleRead => "people.read",
        /// Create, change and delete owners and teams.
        PeopleManage => "people.manage",
        /// Read pending approval requests.
        ApprovalRead => "approval.read",
        /// Approve or reject requests as the second person.
        ApprovalDecide => "approval.decide",
        /// Read jobs of issuance, renewal and deployment.
        JobRead => "job.read",
        /// Cancel and repeat jobs.
        JobManage => "job.manage",
        /// Read agents.
        AgentRead => "agent.read",
        /// Rename and retire agents.
        AgentManage => "agent.manage",
        /// Create enrolment tokens for agents.
        AgentEnroll => "agent.enroll",
        /// Work as an agent: take jobs, send CSRs, report results.
        AgentWork => "agent.work",
        /// Read sites and nodes of the key service.
        NodeRead => "node.read",
        /// Create, change and delete sites; retire nodes.
        NodeManage => "node.manage",
        /// Create join tokens for nodes.
        NodeEnroll => "node.enroll",
        /// Work as a node: report its presence and discover other nodes.
        NodeWork => "node.work",
        /// Read key policies, and which keys are encrypted under them.
        KeyPolicyRead => "key_policy.read",
        /// Create, rotate and delete key policies.
        KeyPolicyManage => "key_policy.manage",
        /// Store keys that are encrypted under a policy, and withdraw them.
        KeySeal => "key.seal",
        /// Read deployment targets.
        TargetRead => "target.read",
        /// Create, change and delete deployment targets.
        TargetManage => "target.manage",
        /// Read alerts, channels and deliveries.
        AlertRead => "alert.read",
        /// Configure, silence, acknowledge and requeue alerts.
        AlertManage => "alert.manage",
        /// Read the permissions of ACME, EST and SCEP clients.
        ProtocolRead => "protocol.read",
        /// Create EAB keys, passwords and overrides for ACME, EST and SCEP clients.
        ProtocolManage => "protocol.manage",
        /// Read the results of scans.
        InventoryRead => "inventory.read",
        /// Start scans, and change their results.
        InventoryManage => "inventory.manage",
        /// Block a compromised key, and revoke all certificates that use it.
        KeyBlock => "key.block",
        /// Rotate the master key.
        KeyRotate => "key.rotate",
        /// Full access to every credential, regardless of path permissions.
        CredentialManage => "credential.manage",
        /// Configure connections to databases, and the SQL of the roles for dynamic credentials.
        DatabaseManage => "database.manage",
        /// Read the held and the recent requests of the proxy in the server's process.
        ProxyRead => "proxy.read",
        /// Approve and reject the requests that the proxy in the server's process holds, and replay recent requests.
        ProxyDecide => "proxy.decide",
        /// Read events.
        EventRead => "event.read",
        /// Read the metrics.
        MetricsRead => "metrics.read",
        /// Read and export the audit log.
        AuditRead => "audit.read",
        /// Verify the hash chains of the audit log.
        AuditVerify => "audit.verify",
        /// Read tokens, users, sessions and roles.
        AccessRead => "access.read",
        /// Create and delete tokens, users and roles, within the caller's own permissions.
        AccessManage => "access.manage",
    }
}

impl Permission {
    /// Returns whether changes with this permission require a session with a recent proof of identity. These changes take
    /// certificates out of service, export keys, or change CAs and access.
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

// A set fits into one `u64`.
const _: () = assert!(Permission::ALL.len() <= 64);

/// A set of permissions, stored as one bit for each.
#[derive(Clone, Copy, Default, Eq, PartialEq)]
pub struct Permissions(u64);

impl Permissions {
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Returns the set of these permissions.
    #[must_use]
    pub const fn of(permissions: &[Permission]) -> Self {
        let (mut bits, mut at) = (0, 0);
        while at < permissions.len() {
            bits |= 1 << permissions[at] as u8;
            at += 1;
        }
        Self(bits)
    }

    /// Returns the set of all permissions.
    #[must_use]
    pub const fn all() -> Self {
        Self::of(&Permission::ALL)
    }

    /// Returns whether the set contains the permission.
    #[must_use]
    pub const fn has(self, permission: Permission) -> bool {
        self.0 & (1 << permission as u8) != 0
    }

    /// Returns whether the set contains every permission of `other`.
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// Returns the permissions of both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the set without the permissions of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Iterates over the permissions of the set.
    pub fn iter(self) -> impl Iterator<Item = Permission> {
        Permission::ALL.iter().copied().filter(move |permission| self.has(*permission))
    }
}

impl fmt::Debug for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Permission::name)).finish()
    }
}

/// A built-in role, which cannot be changed.
#[derive(Clone, Copy, Debug)]
pub struct BuiltInRole {
    /// Unique name of the role, as in a grant: `operator`.
    pub name: &'static str,
    /// Description for people, shown in lists.
    pub description: &'static str,
    /// Permissions that a grant of the role gives within its scope.
    pub permissions: Permissions,
}

/// All read permissions, except those on access, the audit log and the proxy.
const READ_PERMISSIONS: Permissions = Permissions::of(&[
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

/// The built-in roles, which exist on every server and cannot be changed.
pub const BUILT_IN_ROLES: &[BuiltInRole] = &[
    BuiltInRole { name: "admin", description: "everything", permissions: Permissions::all() },
    BuiltInRole {
        name: "operator",
        description: "manages certificates, issuers, targets and alerts; cannot manage access or approve",
        permissions: READ_PERMISSIONS.union(Permissions::of(&[
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
        description: "requests and renews certificates",
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
        description: "approves and rejects (two-person rule)",
        permissions: Permissions::of(&[
            Permission::ApprovalRead,
            Permission::ApprovalDecide,
            Permission::ProxyRead,
            Permission::ProxyDecide,
            Permission::CertificateRead,
            Permission::ProfileRead,
            Permission::JobRead,
        ]),
    },
    BuiltInRole { name: "viewer", description: "reads, but changes nothing", permissions: READ_PERMISSIONS },
    BuiltInRole {
        name: "auditor",
        description: "reads everything, including the audit log and access; changes nothing",
        permissions: READ_PERMISSIONS.union(Permissions::of(&[
            Permission::AuditRead,
            Permission::AuditVerify,
            Permission::AccessRead,
            Permission::ProxyRead,
        ])),
    },
    BuiltInRole {
        name: "agent",
        description: "works as an agent and has no other access",
        permissions: Permissions::of(&[Permission::AgentWork]),
    },
    BuiltInRole {
        name: "node",
        description: "works as a key service node and has no other access",
        permissions: Permissions::of(&[Permission::NodeWork]),
    },
];

/// Returns the built-in role of this name; `None` for a custom or unknown role.
#[must_use]
pub fn built_in_role(name: &str) -> Option<&'static BuiltInRole> {
    BUILT_IN_ROLES.iter().find(|role| role.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permission_names_have_noun_and_verb() {
        for permission in Permission::ALL {
            let (noun, verb) = permission.name().split_once('.').unwrap();
            assert!(!noun.is_empty() && !verb.is_empty());
        }
    }

    #[test]
    fn built_in_roles_exclude_privileged_permissions() {
        let of = |name: &str| built_in_role(name).unwrap().permissions;
        assert_eq!(of("admin"), Permissions::all());
        for name in ["operator", "issuer", "approver", "viewer", "auditor", "agent", "node"] {
            assert!(!of(name).has(Permission::AccessManage), "{name}");
            assert!(!of(name).has(Permission::KeyRotate), "{name}");
            // Permissions on nodes decide who can decrypt keys.
            assert!(!of(name).has(Permission::NodeEnroll) && !of(name).has(Permission::NodeManage), "{name}");
            assert!(!of(name).has(Permission::KeyPolicyManage), "{name}");
        }
        // The requester must never be the approver.
        assert!(!of("operator").has(Permission::ApprovalDecide));
        assert!(!of("operator").has(Permission::ProxyDecide));
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
    fn permission_sets_support_set_operations() {
        let pair = Permissions::of(&[Permission::CaRead, Permission::KeyBlock]);
        assert!(pair.has(Permission::CaRead) && !pair.has(Permission::CaManage));
        assert!(Permissions::all().covers(pair) && !pair.covers(Permissions::all()));
        assert_eq!(pair.iter().count(), 2);
        assert_eq!(format!("{pair:?}"), r#"{"ca.read", "key.block"}"#);
        assert_eq!(pair.without(pair), Permissions::NONE);
    }
}
