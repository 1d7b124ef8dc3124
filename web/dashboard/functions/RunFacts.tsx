import { Anchor, Card, Title } from '@mantine/core';
import { Link } from '@tanstack/react-router';
import { Copyable } from '../../ui/Copyable.tsx';
import { Fact, Facts } from '../../ui/Facts.tsx';
import { FunctionLink } from './FunctionLink.tsx';
import type { FunctionType, Run } from './queries.ts';
import { triggerWords } from './words.ts';

/** Whose run it is, and what set it off. */
export function RunFacts({ environment, run, type }: { environment: string; run: Run; type: FunctionType }) {
  const { provider_config_key: integration, connection_id: id, function: name } = run;
  return (
    <Card component="section" aria-label="About">
      <Title order={2} mb="xs">
        About
      </Title>
      <Facts>
        <Fact name="Function">
          <Anchor
            inherit
            renderRoot={(looks) => (
              <FunctionLink environment={environment} at={{ integration, type, name }} {...looks} />
            )}
          >
            {name}
          </Anchor>
        </Fact>
        <Fact name="Version">{run.version}</Fact>
        <Fact name="Connection">
          {id === null ? (
            'deleted'
          ) : (
            <Anchor
              inherit
              renderRoot={(props) => (
                <Link
                  to="/$environment/connections/$integration/$id"
                  params={{ environment, integration, id }}
                  {...props}
                />
              )}
            >
              {id}
            </Anchor>
          )}
        </Fact>
        <Fact name="Set off">{triggerWords(run.trigger)}</Fact>
        <Fact name="Attempt">
          {run.attempt === 0 ? 'none yet' : run.attempt} of {run.most_attempts}
        </Fact>
        <Fact name="Run ID">
          <Copyable value={run.id} what="the run ID" />
        </Fact>
      </Facts>
    </Card>
  );
}
