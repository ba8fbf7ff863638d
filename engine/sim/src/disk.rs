//! A virtual disk that keeps what a process crash and what a power loss would leave apart.
