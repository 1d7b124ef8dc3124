/** How users authenticate, by auth mode. */
export const authLabels: Record<string, string> = {
  OAUTH2: 'OAuth',
  OAUTH1: 'OAuth 1.0a',
  OAUTH2_CC: 'Client credentials',
  API_KEY: 'API key',
  BASIC: 'User and password',
  TWO_STEP: 'Sign-in (two-step)',
  JWT: 'Private key',
  AWS_SIGV4: 'AWS access key',
  AWS_ROLE: 'AWS role',
  NONE: 'No credentials',
};

/** The auth modes whose credentials stay as they are: there is no refresh. */
export const withoutRefresh = ['OAUTH1', 'API_KEY', 'BASIC', 'AWS_SIGV4', 'NONE'];
