/** Definitions to begin with, one for each kind of provider that an environment can add. */
const head = `display_name: Acme
categories: [other]
docs: https://acme.example/docs
`;
const api = 'api: { base_url: https://api.acme.example }\n';

export const definitionExamples: Record<string, { label: string; text: string }> = {
  OAUTH2: {
    label: 'OAuth 2.0',
    text: `${head}auth_mode: OAUTH2
authorization: { url: https://acme.example/oauth/authorize }
token: { url: https://acme.example/oauth/token }
scopes:
  default: [read]
  catalogue:
    read: { sensitivity: sensitive, description: Read your data. }
${api}`,
  },
  OAUTH2_CC: {
    label: 'Client credentials',
    text: `${head}auth_mode: OAUTH2_CC
token: { url: https://acme.example/oauth/token }
${api}`,
  },
  API_KEY: {
    label: 'API key',
    text: `${head}auth_mode: API_KEY
placement: [{ in: header, name: X-Api-Key, value: "\${credentials.apiKey}" }]
verification: { path: /me }
${api}`,
  },
  BASIC: {
    label: 'User and password',
    text: `${head}auth_mode: BASIC
verification: { path: /me }
${api}`,
  },
  TWO_STEP: {
    label: 'Sign-in (two-step)',
    text: `${head}auth_mode: TWO_STEP
credentials:
  username: { title: User name, description: The name of your user. }
  password: { title: Password, description: Your password., secret: true }
login:
  url: https://api.acme.example/login
  json: { username: "\${credentials.username}", password: "\${credentials.password}" }
  answer: { token: token, expires_in: expires_in }
${api}`,
  },
  JWT: {
    label: 'Private key',
    text: `${head}auth_mode: JWT
token: { url: https://acme.example/oauth/token }
assertion:
  use: grant
  algorithm: RS256
  claims: { iss: "\${credentials.issuerId}", aud: https://acme.example/oauth/token }
  life_s: 300
credentials:
  issuerId: { title: Client ID, description: The ID of the client that owns the key. }
${api}`,
  },
};
