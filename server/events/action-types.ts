import { z } from 'zod';
import { eventType, exampleDataset, ofDataset } from './event-type.ts';

const { model: _model, variant: _variant, ...ofConnection } = ofDataset;
const { model: _exampleModel, variant: _exampleVariant, ...exampleConnection } = exampleDataset;
const ofAction = {
  ...ofConnection,
  function: z.string().describe('The name of the action'),
  run: z.uuid().describe('What `POST /action/trigger` answered: its outcome is at `GET /action/{id}`'),
};
const example = {
  ...exampleConnection,
  function: 'append-row',
  run: '0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b',
};

/** What becomes of actions that nobody waited for. */
export const actionTypes = {
  'action.succeeded': eventType({
    meaning: 'An action that was called with `X-Async: true` has answered; told once.',
    data: z.strictObject(ofAction),
    example,
  }),
  'action.failed': eventType({
    meaning:
      'An action that was called with `X-Async: true` has failed and is not tried again, or was cancelled.',
    data: z.strictObject({ ...ofAction, error: z.strictObject({ code: z.string(), message: z.string() }) }),
    example: { ...example, error: { code: 'action_error', message: 'None left.' } },
  }),
};
