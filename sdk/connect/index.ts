export { type ConnectOptions, connect } from './connect.ts';
export { ConnectError, type ConnectErrorCode, isConnectError } from './connect-error.ts';
export type { Connected } from './progress.ts';
export { type FinishOptions, finishConnect } from './redirect.ts';
