//! Protobuf messages, clients and servers of the hook protocols, generated from the protocol definitions. The generated files are
//! checked in, so that a build needs no protobuf compiler. A test generates them again and compares the result.

#![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, reason = "generated")]

pub mod config {
    pub mod core {
        pub mod v3 {
            include!("envoy.config.core.v3.rs");
        }
    }
}

pub mod service {
    pub mod auth {
        pub mod v3 {
            include!("envoy.service.auth.v3.rs");
        }
    }
    pub mod ext_proc {
        pub mod v3 {
            include!("envoy.service.ext_proc.v3.rs");
        }
    }
}
