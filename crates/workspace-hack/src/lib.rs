//! Holds no code: its manifest chooses the features of shared dependencies.
