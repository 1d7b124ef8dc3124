import { Box, Group, Text, Tooltip } from '@mantine/core';
import { useElementSize } from '@mantine/hooks';
import { type PointerEvent, useState } from 'react';
import { Legend } from './Legend.tsx';

export type Series = {
  name: string;
  /** A color of the theme, such as `teal.6`. */
  color: string;
  values: (number | null)[];
};

const height = 138;
const margin = { top: 14, right: 8, bottom: 22, left: 56 };
const maxTicks = 4;
/** Between the labels of two points. */
const labelWidth = 64;
/** A value above this many times the median is an outlier. */
const outlier = 3;

/** Series over time, as stacked bars or as lines with gaps. `names` are the labels of the points. */
export function TimeChart({
  label,
  names,
  series,
  isStacked = false,
  format,
}: {
  /** Read by screen readers. */
  label: string;
  names: string[];
  series: Series[];
  isStacked?: boolean;
  format: (value: number) => string;
}) {
  const { ref, width } = useElementSize();
  const [pointed, setPointed] = useState<number>();
  const max = Math.max(...names.map((_, index) => (isStacked ? sumAt : maxAt)(series, index)), 1);
  const step = stepOf(max);
  const top = Math.ceil(max / step) * step;
  const band = Math.max(width - margin.left - margin.right, 1) / Math.max(names.length, 1);
  const xOf = (index: number) => margin.left + (index + 0.5) * band;
  const yOf = (value: number) =>
    height - margin.bottom - (value / top) * (height - margin.top - margin.bottom);
  const every = Math.max(Math.ceil(labelWidth / band), 1);
  const point = ({ clientX, currentTarget }: PointerEvent) => {
    const index = Math.floor((clientX - currentTarget.getBoundingClientRect().left - margin.left) / band);
    setPointed(index >= 0 && index < names.length ? index : undefined);
  };
  return (
    <Box role="img" aria-label={label}>
      <Group h={32} justify="flex-end">
        <Legend parts={series} />
      </Group>
      <Tooltip.Floating
        disabled={pointed === undefined}
        label={pointed === undefined ? '' : <Values {...{ names, series, format }} index={pointed} />}
      >
        <Box ref={ref} h={height} onPointerMove={point} onPointerLeave={() => setPointed(undefined)}>
          <svg className="time-chart" width={width} height={height} aria-hidden>
            {Array.from({ length: Math.round(top / step) + 1 }, (_, index) => index * step).map((tick) => (
              <g key={tick}>
                <line x1={margin.left} x2={width - margin.right} y1={yOf(tick)} y2={yOf(tick)} />
                <text x={margin.left - 8} y={yOf(tick)} dy="0.32em" textAnchor="end">
                  {format(tick)}
                </text>
              </g>
            ))}
            {names.map((name, index) =>
              index % every === 0 && xOf(index) + labelWidth / 2 <= width ? (
                // biome-ignore lint/suspicious/noArrayIndexKey: the names of two points can be equal, and points have no state.
                <text key={index} x={xOf(index)} y={height - 6} textAnchor="middle">
                  {name}
                </text>
              ) : null,
            )}
            {series.map((one, place) =>
              isStacked ? (
                <path key={one.name} fill={colorOf(one)} d={barsOf(one, series.slice(0, place))} />
              ) : (
                <g key={one.name} stroke={colorOf(one)} fill={colorOf(one)}>
                  <path fill="none" strokeWidth={2} d={lineOf(one)} />
                  <path strokeWidth={5} strokeLinecap="round" d={dotsOf(one)} />
                </g>
              ),
            )}
            {series.slice(-1).map((one) => outlierOf(one))}
          </svg>
        </Box>
      </Tooltip.Floating>
    </Box>
  );

  /** On top of the series below. */
  function barsOf({ values }: Series, below: Series[]): string {
    const bar = Math.min(band * 0.7, 20);
    return values
      .map((value, index) => {
        if (!value) return '';
        const from = sumAt(below, index);
        return `M${xOf(index) - bar / 2} ${yOf(from)}V${yOf(from + value)}h${bar}V${yOf(from)}z`;
      })
      .join('');
  }

  function lineOf({ values }: Series): string {
    return values
      .map((value, index) =>
        value === null ? '' : `${values[index - 1] == null ? 'M' : 'L'}${xOf(index)} ${yOf(value)}`,
      )
      .join('');
  }

  function dotsOf({ values }: Series): string {
    return values.map((value, index) => (value === null ? '' : `M${xOf(index)} ${yOf(value)}h0`)).join('');
  }

  /** The largest value of a series is written at its place if it is far from the usual ones. */
  function outlierOf({ name, values }: Series) {
    const sorted = values.filter((value) => value !== null).toSorted((one, other) => one - other);
    const [usual = 0, largest = 0] = [sorted[sorted.length >> 1], sorted.at(-1)];
    if (sorted.length < 3 || largest <= outlier * usual || largest === 0) return null;
    const index = values.indexOf(largest);
    const side = index > names.length / 2 ? -1 : 1;
    return (
      <text
        key={name}
        className="outlier"
        x={xOf(index) + (isStacked ? 0 : side * 8)}
        y={Math.max(yOf(isStacked ? sumAt(series, index) : largest) - 3, 10)}
        textAnchor={isStacked ? 'middle' : side < 0 ? 'end' : 'start'}
      >
        {format(largest)}
      </text>
    );
  }
}

function Values({
  names,
  series,
  format,
  index,
}: {
  names: string[];
  series: Series[];
  format: (value: number) => string;
  index: number;
}) {
  return (
    <>
      <Text size="xs">{names[index]}</Text>
      {series.map(({ name, values }) => (
        <Text key={name} size="sm">
          {name}: {values[index] == null ? '–' : format(values[index])}
        </Text>
      ))}
    </>
  );
}

const sumAt = (series: Series[], index: number) =>
  series.reduce((sum, { values }) => sum + (values[index] ?? 0), 0);
const maxAt = (series: Series[], index: number) =>
  Math.max(...series.map(({ values }) => values[index] ?? 0));

const colorOf = ({ color }: Series) => `var(--mantine-color-${color.replace('.', '-')})`;

/** 1, 2 or 5 times a power of ten, at least 1. */
function stepOf(max: number): number {
  const least = max / maxTicks;
  const power = 10 ** Math.floor(Math.log10(least));
  return Math.max([1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least) ?? 1, 1);
}
