export { type ConnectOptions, connect } from './connect.ts';
export { ConnectError, type ConnectErrorCode, isConnectError } from './connect-error.ts';
export type { Connected, Session } from './progress.ts';
export { type FinishOptions, finishConnect } from './redirect.ts';
export {
  authorizationUrl,
  authorize,
  type Choice,
  type Choices,
  ConnectCallError,
  type ConnectFieldError,
  listChoices,
  requestMissingScopes,
  submitForm,
} from './session.ts';
