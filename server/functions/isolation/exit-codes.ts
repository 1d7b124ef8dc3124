/** By which a process tells why it ended itself. */
export const floodedExitCode = 71;
export const channelBrokenExitCode = 72;
