/** Code that verifies a signature, to copy. */
export const snippets = [
  {
    name: 'Node.js',
    about: 'Uses the package @trellis-run/client.',
    code: `import { isTrellisError, verifyEvent } from '@trellis-run/client';
import express from 'express';

express()
  .post('/trellis', express.raw({ type: 'application/json' }), async (request, response) => {
    try {
      const event = await verifyEvent(request.body, request.headers, process.env.TRELLIS_SIGNING_KEY ?? '');
      // Handle event.type and event.data, once for each event.id.
    } catch (error) {
      if (!isTrellisError(error, 'invalid_signature', 'stale_signature')) throw error;
      return response.status(401).end();
    }
    return response.status(204).end();
  })
  .listen(8080);`,
  },
  {
    name: 'Python',
    about: 'Uses the package standardwebhooks, which also exists for other languages.',
    code: `import os
from flask import Flask, request
from standardwebhooks.webhooks import Webhook

app = Flask(__name__)
webhook = Webhook(os.environ["TRELLIS_SIGNING_KEY"])  # whsec_...

@app.post("/trellis")
def take():
    # Raises if the signature is not valid.
    event = webhook.verify(request.get_data(), dict(request.headers))
    return "", 204`,
  },
  {
    name: 'By hand',
    about:
      'HMAC-SHA-256 of id.timestamp.body, under the bytes that follow whsec_; during a rotation one for each key.',
    code: `import { createHmac, timingSafeEqual } from 'node:crypto';

export function isOurs(body, headers, signingKey, now = Date.now()) {
  const id = headers['webhook-id'];
  const timestamp = headers['webhook-timestamp'];
  if (Math.abs(now / 1000 - Number(timestamp)) > 300) return false;
  const key = Buffer.from(signingKey.replace('whsec_', ''), 'base64');
  const expected = createHmac('sha256', key).update(\`\${id}.\${timestamp}.\${body}\`).digest();
  return headers['webhook-signature'].split(' ').some((part) => {
    const given = Buffer.from(part.replace('v1,', ''), 'base64');
    return given.length === expected.length && timingSafeEqual(given, expected);
  });
}`,
  },
] as const;
