import { useEffect, useState } from 'react';
import { Fault } from '../api/client.ts';
import { accountTexts, Begin } from './Begin.tsx';
import { ChoiceList } from './ChoiceList.tsx';
import { Done } from './Done.tsx';
import { type Failure, failureBy, failureOfSession } from './failure.ts';
import { tellHost } from './host.ts';
import { keepInAddress, type Launch } from './launch.ts';
import { Loading, Notice, Said } from './Notice.tsx';
import { askForTheRest, type Choice, type Made, type Progress, tripUrl } from './queries.ts';
import { SetUp } from './SetUp.tsx';
import type { SessionView } from './session.ts';
import { useSay } from './texts.ts';
import { keepAsking, useTrip } from './trip.ts';
import { Waiting } from './Waiting.tsx';

/** Which step the person is at, by what the service says of the session and by what was done here. */
export function ConnectPage({
  launch,
  view,
  onConnected,
}: {
  launch: Launch;
  view: SessionView;
  onConnected: (made: Made) => void;
}) {
  const say = useSay();
  const { session, progress, choices, fault, load, ask } = view;
  const [key, setKey] = useState(launch.integration);
  const choose = (chosen: string | undefined) => {
    setKey(chosen);
    keepInAddress('integration', chosen);
  };
  const [failure, setFailure] = useState<Failure>();
  const [isSkipped, setSkipped] = useState(false);
  const { trip, begin, openedByLink, giveUp } = useTrip(launch, {
    ask,
    fail: ({ payload }) => setFailure(failureBy(payload)),
  });

  useSessionFailure(progress, setFailure);
  // Somebody went to the provider from a page that has been left or loaded again since.
  const isAwayFromElsewhere = trip === undefined && progress?.under_way === true;
  useEffect(
    () => (isAwayFromElsewhere ? keepAsking(() => ask().catch(() => false)) : undefined),
    [isAwayFromElsewhere, ask],
  );
  // How a trip in this very tab ended, where the service cannot know.
  useEffect(() => setFailure(launch.returned?.payload && failureBy(launch.returned.payload)), [launch]);
  useEffect(() => {
    if (failure !== undefined) {
      tellHost({
        type: 'error',
        payload: { errorType: failure.type, errorMessage: failure.said ?? failure.kind },
      });
    }
  }, [failure]);
  useEffect(() => {
    if (trip?.is !== 'closed' || !launch.detectsClosedWindow) return;
    const payload = { errorType: 'window_closed', errorMessage: 'The window was closed.' };
    tellHost({ type: 'error', payload });
  }, [trip?.is, launch]);

  const made = progress?.connection ?? undefined;
  const choice = choices?.choices.find(({ unique_key }) => unique_key === key) ?? onlyOf(choices?.choices);
  const provider = made?.provider_display_name ?? choice?.provider_display_name ?? '';
  useEffect(() => {
    const name = made?.display_name ?? choice?.display_name;
    document.title = name === undefined ? say('connect') : say('connectTitle', { name });
  }, [made, choice, say]);

  if (session === undefined) return launch.isFramed ? <Loading /> : <Ended why="incomplete" />;
  if (fault !== undefined) return <Refused fault={fault} onRetry={load} />;
  if (progress === undefined) return <Loading />;
  if (trip !== undefined) {
    const mayBegin = progress.state === 'open';
    const again = { onAgain: () => void begin(trip.url), onBack: giveUp };
    return <Waiting trip={trip} provider={provider} onOpened={openedByLink} {...(mayBegin && again)} />;
  }
  const start = (chosen: string, values: Record<string, string> = {}, ready?: Promise<void>) => {
    setFailure(undefined);
    return begin(tripUrl(session, { key: chosen, values }), ready);
  };
  if (made !== undefined && (failure === undefined || progress.state === 'expired')) {
    const mayGoOn = Date.parse(progress.expires_at) > Date.now();
    const rest = () => start(made.provider_config_key, {}, askForTheRest(session)).catch(load);
    return (
      <Done
        made={made}
        isFramed={launch.isFramed}
        onConnected={onConnected}
        {...(mayGoOn && { onRest: rest })}
        {...(progress.setup === 'sheet' &&
          !isSkipped && {
            setUp: <SetUp session={session} made={made} onChosen={load} onSkip={() => setSkipped(true)} />,
          })}
      />
    );
  }
  if (progress.state === 'expired' && progress.under_way) {
    return <Waiting trip={{ is: 'away', isLong: false }} provider={provider} />;
  }
  if (progress.state === 'expired') return <Ended why="expired" />;
  if (failure !== undefined)
    return (
      <Failed
        failure={failure}
        provider={provider}
        account={choice?.account ?? undefined}
        onAgain={() => setFailure(undefined)}
      />
    );
  if (choices === undefined) return <Loading />;
  if (key !== undefined && choice === undefined) return <Ended why="otherThing" />;
  if (choices.choices.length === 0) {
    return <Notice tone="error" title={say('nothingTitle')} text={say('nothingText')} />;
  }
  if (choice === undefined) return <ChoiceList choices={choices} onChoose={choose} />;
  return (
    <Begin
      key={choice.unique_key}
      choice={choice}
      choices={choices}
      session={session}
      isUnderWay={progress.under_way}
      onTravel={(values) => void start(choice.unique_key, values)}
      onDone={load}
      onOther={choices.choices.length > 1 ? () => choose(undefined) : undefined}
    />
  );
}

/** What the service knows of the last trip, once for each. */
function useSessionFailure(progress: Progress | undefined, show: (failure: Failure) => void): void {
  const at = progress?.under_way ? undefined : progress?.failure?.at;
  // biome-ignore lint/correctness/useExhaustiveDependencies: by its time, since each answer is another object
  useEffect(() => {
    if (at !== undefined && progress?.failure) show(failureOfSession(progress.failure));
  }, [at]);
}

function onlyOf(choices: Choice[] | undefined): Choice | undefined {
  return choices?.length === 1 ? choices[0] : undefined;
}

function Failed({
  failure: { kind, said },
  provider,
  account,
  onAgain,
}: {
  failure: Failure;
  provider: string;
  /** Which one is expected. */
  account: NonNullable<Choice['account']> | undefined;
  onAgain: () => void;
}) {
  const say = useSay();
  const canRetry = kind !== 'gone' && kind !== 'otherBrowser';
  return (
    <Notice
      tone="error"
      title={say(`${kind}Title`, { provider })}
      text={say(`${kind}Text`, { provider })}
      {...(canRetry && { action: { label: say('tryAgain'), onClick: onAgain } })}
    >
      {kind === 'otherAccount' && account !== undefined && (
        <p className="account">{say(accountTexts[account.rule], { email: account.email })}</p>
      )}
      {said !== undefined && <Said text={said} />}
    </Notice>
  );
}

function Ended({ why }: { why: 'expired' | 'unknown' | 'incomplete' | 'gone' | 'otherThing' }) {
  const say = useSay();
  return <Notice tone="error" title={say(`${why}Title`)} text={say(`${why}Text`)} />;
}

function Refused({ fault, onRetry }: { fault: unknown; onRetry: () => void }) {
  const say = useSay();
  const { code, status, requestId } = fault instanceof Fault ? fault : { code: 'unknown', status: 0 };
  if (code === 'invalid_connect_session_token_format') return <Ended why="incomplete" />;
  if (status === 401) return <Ended why="unknown" />;
  if (code === 'unknown_connection') return <Ended why="gone" />;
  const action = { label: say('tryAgain'), onClick: onRetry };
  if (code === 'unreachable') {
    return (
      <Notice tone="error" title={say('unreachableTitle')} text={say('unreachableText')} action={action} />
    );
  }
  return (
    <Notice tone="error" title={say('faultTitle')} text={say('faultText')} action={action}>
      <Said text={[code, requestId].filter(Boolean).join(' · ')} />
    </Notice>
  );
}
