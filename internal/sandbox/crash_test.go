package sandbox

const crashEnv = "POLICYD_SANDBOX_CRASH_DIR"

func crashMain(string) int { return 0 }
