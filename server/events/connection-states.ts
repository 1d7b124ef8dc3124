/** The states of a connection in its health and in events: the connection has the first state of this list that applies. */
export const connectionStates = [
  'blocked',
  'reconnect_needed',
  'integration_error',
  'provider_unavailable',
  'scopes_missing',
  'unverified',
  'healthy',
] as const;
export type ConnectionState = (typeof connectionStates)[number];
