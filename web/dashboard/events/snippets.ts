/** Code that verifies a signature, to copy. */
export const snippets = [
  {
    name: 'Node.js',
    about: 'Uses the package standardwebhooks, which also exists for other languages.',
    code: `import express from 'express';
import { Webhook } from 'standardwebhooks';

const webhook = new Webhook(process.env.SIGNING_KEY); // whsec_...

express()
  .post('/trellis', express.raw({ type: '*/*' }), (request, response) => {
    // Throws if the signature is not valid.
    const event = webhook.verify(request.body.toString(), request.headers);
    response.sendStatus(204);
    // Handle event.type and event.data, once for each event.id.
  })
  .listen(8080);`,
  },
  {
    name: 'Python',
    about: 'With the package standardwebhooks.',
    code: `import os
from flask import Flask, request
from standardwebhooks.webhooks import Webhook

app = Flask(__name__)
webhook = Webhook(os.environ["SIGNING_KEY"])  # whsec_...

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
