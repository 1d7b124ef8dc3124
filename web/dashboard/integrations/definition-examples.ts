/** Definitions to begin with, one for each auth mode. */
const head = `display_name: Acme
categories: [other]
docs: https://acme.example/docs
`;
const api = 'api: { base_url: https://api.acme.example }\n';

export const definitionExamples: Record<string, string> = {
  OAUTH2: `${head}auth_mode: OAUTH2
authorization: { url: https://acme.example/oauth/authorize }
token: { url: https://acme.example/oauth/token }
scopes:
  default: [read]
  catalogue:
    read: { sensitivity: sensitive, description: Read your data. }
${api}`,
  OAUTH2_CC: `${head}auth_mode: OAUTH2_CC
token: { url: https://acme.example/oauth/token }
${api}`,
  OAUTH1: `${head}auth_mode: OAUTH1
authorization: { url: https://acme.example/oauth/authorize }
oauth1: { request_url: https://acme.example/oauth/request_token }
token: { url: https://acme.example/oauth/access_token }
verification: { path: /me }
${api}`,
  API_KEY: `${head}auth_mode: API_KEY
placement: [{ in: header, name: X-Api-Key, value: "\${credentials.apiKey}" }]
verification: { path: /me }
${api}`,
  BASIC: `${head}auth_mode: BASIC
verification: { path: /me }
${api}`,
  TWO_STEP: `${head}auth_mode: TWO_STEP
credentials:
  username: { title: User name, description: The name of your user. }
  password: { title: Password, description: Your password., secret: true }
login:
  url: https://api.acme.example/login
  json: { username: "\${credentials.username}", password: "\${credentials.password}" }
  answer: { token: token, expires_in: expires_in }
${api}`,
  JWT: `${head}auth_mode: JWT
token: { url: https://acme.example/oauth/token }
assertion:
  use: grant
  algorithm: RS256
  claims: { iss: "\${credentials.issuerId}", aud: https://acme.example/oauth/token }
  life_s: 300
credentials:
  issuerId: { title: Client ID, description: The ID of the client that owns the key. }
${api}`,
  AWS_SIGV4: `${head}auth_mode: AWS_SIGV4
signature: { service: s3, region: eu-1 }
${api}`,
  AWS_ROLE: `${head}auth_mode: AWS_ROLE
connection_config:
  role_arn:
    title: Role ARN
    description: The role to assume.
    pattern: 'arn:aws:iam::\\d{12}:role/[\\w+=,.@/-]{1,512}'
signature:
  service: sqs
  region: eu-west-1
  assume_role: { url: https://sts.eu-west-1.amazonaws.com/, role_arn: "\${connectionConfig.role_arn}" }
api: { base_url: https://sqs.eu-west-1.amazonaws.com }
`,
  NONE: `${head}auth_mode: NONE
${api}`,
};
