"""Requests as data: one frozen dataclass for each command.

`fields`: the fields of requests: their help, bounds, choices and names; a request as the words of a shell command, and
as a program
`shared_fields`: fields that several have without a class in common
`base`: what all requests have in common, and the fields that several share
`running`: how a request is run from Python, and what it gives
`output`: what results are written as
`ablation`: `AblateHeads`
`accuracy`: `Evaluate`, `CheckPublished`
`scores`: `ScoreImportance`, `ScoreInduction`, `ScoreLayers`, `CompareCriteria`
`texts`: `MeasureLosses`, `AttributeHeads`, `ContinuePrompt`, `MeasureAttention`, `MeasureLens`
`heads`: `ReportHead`, `IdealizeHeads`, `ShowFindings`
`studies`: `Correlate`, `Sweep`
`mechanisms`: `CompareMechanisms`
`vectors`: `SwitchTaskOn`
`patches`: `PatchPrompts`
`corpus`: `ReadCorpus`
`precision`: `ComparePrecisions`
`pruned`: `ExportModel`, `MeasureSpeed`, `MeasurePerplexity`
`training`: `TrainModel`, `MeasureTrajectory`, `JudgeRuns`
`store`: `ManageStore`, `ListTasks`, `ListModels`
`doctor`: `Diagnose`
"""

from engine.requests.ablation import AblateHeads
from engine.requests.accuracy import CheckPublished, Evaluate
from engine.requests.base import Request
from engine.requests.corpus import ReadCorpus
from engine.requests.doctor import Diagnose
from engine.requests.fields import argv as argv
from engine.requests.fields import program as program
from engine.requests.heads import IdealizeHeads, ReportHead, ShowFindings
from engine.requests.mechanisms import CompareMechanisms
from engine.requests.patches import PatchPrompts
from engine.requests.precision import ComparePrecisions
from engine.requests.pruned import ExportModel, MeasurePerplexity, MeasureSpeed
from engine.requests.running import Result as Result
from engine.requests.scores import CompareCriteria, ScoreImportance, ScoreInduction, ScoreLayers
from engine.requests.store import ListModels, ListTasks, ManageStore
from engine.requests.studies import Correlate, Sweep
from engine.requests.texts import AttributeHeads, ContinuePrompt, MeasureAttention, MeasureLens, MeasureLosses
from engine.requests.training import JudgeRuns, MeasureTrajectory, TrainModel
from engine.requests.vectors import SwitchTaskOn

REQUESTS: tuple[type[Request], ...] = (
    Evaluate, ScoreImportance, ScoreInduction, ScoreLayers, AblateHeads, CheckPublished, MeasureLosses, AttributeHeads,
    ContinuePrompt, MeasureAttention, MeasureLens, IdealizeHeads, MeasurePerplexity, ReportHead, Correlate, Sweep,
    ExportModel, MeasureSpeed, CompareCriteria, ComparePrecisions, CompareMechanisms, SwitchTaskOn, PatchPrompts,
    ReadCorpus, TrainModel, MeasureTrajectory, JudgeRuns, ManageStore, ListTasks,
    ListModels, Diagnose, ShowFindings,
)  # fmt: skip
