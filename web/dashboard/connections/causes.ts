import { sentence } from '../../ui/words.ts';

const names: Record<string, string> = {
  grant_dead: 'Access revoked or expired',
  credentials_refused: 'Client of the connection rejected',
  scopes_refused: 'Scopes rejected',
  settings_refused: 'Settings rejected',
  client_refused: 'OAuth client rejected',
  client_deleted: 'OAuth client deleted',
  client_misconfigured: 'Setting rejected',
  client_not_allowed: 'OAuth client not allowed',
};

/** The name of the cause of a fault of a connection or an integration. */
export function causeName(code: string): string {
  return names[code] ?? sentence(code);
}
