"""What `safelight doctor` looks at: `probe/` asks servers, files and devices, `judge/` says what the answers mean."""
